// Starts MPI at a thread level and uses two communicators from two threads:
//
//     thread_level funneled | serialized
//
// At `funneled` the communicator must be refused.

#include <zero/core/error.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/mpi/communicator.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

bool is_refused() {
    try {
        zero::mpi::Communicator const communicator(MPI_COMM_WORLD);
    } catch (zero::InvalidArgument const& error) {
        return std::string(error.what()).find("MPI provides the thread level MPI_THREAD_FUNNELED")
               != std::string::npos;
    }
    return false;
}

bool sums_from_two_threads() {
    zero::mpi::Communicator first(MPI_COMM_WORLD);
    zero::mpi::Communicator second = first.split(0, -first.rank());
    zero::host::ThreadedQueue first_queue;
    zero::host::ThreadedQueue second_queue;
    std::vector<std::int64_t> values(400, 1);
    for (std::size_t call = 0; call < values.size(); ++call) {
        auto& communicator = call % 2 == 0 ? first : second;
        communicator.all_reduce_integers(&values[call], 1, zero::IntegerReduction::sum,
                                         call % 2 == 0 ? &first_queue : &second_queue);
    }
    first_queue.synchronise();
    second_queue.synchronise();
    return values == std::vector<std::int64_t>(400, first.size())
           && second.rank() == first.size() - 1 - first.rank();
}

} // namespace

int main(int argc, char** argv) {
    bool const is_funneled = argc == 2 && std::string(argv[1]) == "funneled";
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(nullptr, nullptr, is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED,
                    &level);
    bool is_good = false;
    if (level == (is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED)) {
        is_good = is_funneled ? is_refused() : sums_from_two_threads();
    } else { // MPI may provide more
        is_good = level > MPI_THREAD_FUNNELED && sums_from_two_threads();
    }
    MPI_Finalize();
    std::printf("%s at the thread level %d\n", is_good ? "good" : "wrong", level);
    return is_good ? 0 : 1;
}
