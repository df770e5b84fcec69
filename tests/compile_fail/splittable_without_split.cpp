// expect: zero: a SplittableCommunicator needs 'C split(int color, int key)'.
#include "communicator.hpp"

struct Telegraph : Complete {};

static_assert(zero::diagnose_splittable_communicator<Telegraph>());

int main() {}
