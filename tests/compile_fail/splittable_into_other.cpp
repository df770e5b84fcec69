// expect: must return a communicator of its own type, by value.
#include "communicator.hpp"

struct Telegraph : Complete {
    Telegraph& split(int color, int key);
};

static_assert(zero::diagnose_splittable_communicator<Telegraph>());

int main() {}
