// compiles
#include "communicator.hpp"

struct Telegraph : Complete {
    template <class T>
    void exchange(T const*, T*, std::span<std::size_t const>, Backend::Queue, zero::CollectiveTag);
};

static_assert(zero::diagnose_exchanging_communicator<Telegraph>());

int main() {}
