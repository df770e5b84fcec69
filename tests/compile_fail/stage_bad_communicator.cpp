// expect: zero: a Communicator needs 'void abort(
// nvcc
#include "stage.hpp"

struct Telegraph {
    using policy_category = zero::CommunicatorCategory;
    using Backend = zero::HostBackend;
    int rank() const;
    int size() const;
    template <class T>
    void reduce_scatter(T const*, T*, std::span<std::size_t const>, Backend::Queue,
                        zero::CollectiveTag);
    template <class T>
    void all_gather(T const*, T*, std::span<std::size_t const>, Backend::Queue,
                    zero::CollectiveTag);
    template <class T>
    void all_reduce(T const*, T*, std::span<std::size_t const>, Backend::Queue,
                    zero::CollectiveTag);
    template <class T>
    void broadcast(T*, std::size_t, int, Backend::Queue, zero::CollectiveTag);
    void all_reduce_integers(std::int64_t*, std::size_t, zero::IntegerReduction, Backend::Queue,
                             zero::CollectiveTag);
    void abort(std::string_view cause, bool is_provisional); // must be noexcept
};

using Stage = zero::ZeroStage<2, Telegraph>;

int main() {
    Telegraph telegraph;
    train<Stage>(telegraph);
}
