// expect: zero: an ExchangingCommunicator needs 'exchange(T const* send, T* receive, std::span<std::size_t const> cuts, Queue, CollectiveTag)' for any T of 1, 2, 4 or 8 bytes
#include "communicator.hpp"

struct Telegraph : Complete {
    void exchange(float const*, float*, std::span<std::size_t const>, Backend::Queue,
                  zero::CollectiveTag);
};

static_assert(zero::diagnose_exchanging_communicator<Telegraph>());

int main() {}
