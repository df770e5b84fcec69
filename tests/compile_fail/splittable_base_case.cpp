// compiles
#include "communicator.hpp"

struct Telegraph : Complete {
    Telegraph split(int color, int key);
};

static_assert(zero::diagnose_splittable_communicator<Telegraph>());

int main() {}
