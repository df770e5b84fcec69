#include "fixture.hpp"

#include <zero/core/error.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/mpi/options.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace zero::test::mpi_communicator_ranks_test {

namespace {

std::vector<std::size_t> even_cuts(std::size_t world, std::size_t extent) {
    return cuts_of(std::vector<std::size_t>(world, extent));
}

/// Returns options with the smallest buffers and short times, so that failures are noticed soon.
mpi::Options impatient() {
    mpi::Options options = mpi_options();
    options.heartbeat = std::chrono::milliseconds(50);
    return options;
}

/// Sums of floats, in the order that the options select, and their largest difference from the sum
/// in double, relative to the sum of magnitudes.
struct Sums {
    std::vector<float> scattered;
    std::vector<float> reduced;
    double error = 0.0;
};

Sums sums_in(mpi::Order order, bool is_in_place) {
    mpi::Options options = mpi_options();
    options.order = order;
    mpi::Communicator communicator(mpi_session().world(), options);
    auto const world = static_cast<std::size_t>(communicator.size());
    auto const rank = static_cast<std::size_t>(communicator.rank());
    std::vector<std::size_t> extents(world, 999);
    extents[0] = 3001;
    extents[world - 1] = 0;
    auto const cuts = cuts_of(extents);
    std::vector<float> send = values_of<float>(communicator.rank(), cuts.back(), 5);
    std::vector<float> all(cuts.back());
    Sums sums;
    host::InlineQueue queue;
    sums.scattered.resize(cuts[rank + 1] - cuts[rank]);
    communicator.reduce_scatter(static_cast<float const*>(send.data()), sums.scattered.data(), cuts,
                                &queue);
    if (is_in_place) {
        communicator.all_reduce(static_cast<float const*>(send.data()), send.data(), cuts, &queue);
        sums.reduced = send;
    } else {
        communicator.all_reduce(static_cast<float const*>(send.data()), all.data(), cuts, &queue);
        sums.reduced = all;
    }
    for (std::size_t i = 0; i < cuts.back(); ++i) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (int peer = 0; peer < communicator.size(); ++peer) {
            auto const value = static_cast<double>(value_of<float>(peer, i, 5));
            sum += value;
            magnitude += std::fabs(value);
        }
        sums.error =
            std::max(sums.error, std::fabs(static_cast<double>(sums.reduced[i]) - sum) / magnitude);
    }
    std::vector<float> const own(sums.reduced.begin() + static_cast<std::ptrdiff_t>(cuts[rank]),
                                 sums.reduced.begin()
                                     + static_cast<std::ptrdiff_t>(cuts[rank + 1]));
    CHECK(equal_bits(own, sums.scattered)); // an all-reduce has the bits of a reduce-scatter
    return sums;
}

} // namespace

TEST_CASE("The order of the library is as exact as that of the ranks, and not the same") {
    Sums const ranks = sums_in(mpi::Order::rank, false);
    CHECK(equal_bits(ranks.reduced,
                     sums_of<float>(mpi_session().size(), 0, ranks.reduced.size(), 5)));
    double const tolerance = 1.2e-7 * mpi_session().size(); // one rounding per addition
    CHECK(ranks.error < tolerance);
    for (bool const is_in_place : {false, true}) {
        Sums const library = sums_in(mpi::Order::library, is_in_place);
        CHECK(library.error < tolerance);
        // Two values have only one order. The order of three may be that of the ranks.
        if (int const world = mpi_session().size(); world != 3) {
            CHECK(equal_bits(library.reduced, ranks.reduced) == (world < 3));
        }
    }
}

TEST_CASE("MPI moves buffers at any address of their type") {
    mpi::Communicator communicator(mpi_session().world(), mpi_options());
    auto const world = static_cast<std::size_t>(communicator.size());
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const cuts = even_cuts(world, 65);
    host::InlineQueue queue;
    for (std::size_t shift : {0U, 1U, 3U}) {
        std::vector<bfloat16> send(cuts.back() + 8);
        std::vector<bfloat16> receive(cuts.back() + 8);
        auto const source = values_of<bfloat16>(communicator.rank(), cuts.back(), shift);
        std::copy(source.begin(), source.end(), send.begin() + static_cast<std::ptrdiff_t>(shift));
        communicator.reduce_scatter(static_cast<bfloat16 const*>(send.data() + shift),
                                    receive.data() + shift + 1, cuts, &queue);
        std::vector<bfloat16> const found(receive.data() + shift + 1,
                                          receive.data() + shift + 1 + 65);
        CHECK(equal_bits(
            found, sums_of<bfloat16>(communicator.size(), cuts[rank], cuts[rank + 1], shift)));
    }
}

TEST_CASE("A large bucket goes through a scratch memory that is smaller") {
    mpi::Options options = mpi_options();
    options.scratch_bytes = std::size_t{64} << 10U;
    HostMemoryResource memory;
    options.memory = &memory;
    {
        mpi::Communicator communicator(mpi_session().world(), options);
        std::size_t const shown = // to peers
            communicator.reason_for_messages().empty() ? sizeof(zero::detail::SharedSlot) : 0;
        CHECK(communicator.scratch_bytes(std::size_t{1} << 30U) == options.scratch_bytes + shown);
        CHECK(memory.allocated_bytes(BufferKind::communicator) == options.scratch_bytes);
        auto const world = static_cast<std::size_t>(communicator.size());
        auto const rank = static_cast<std::size_t>(communicator.rank());
        auto const cuts = even_cuts(world, 100'000);
        auto const send = values_of<float>(communicator.rank(), cuts.back(), 3);
        std::vector<float> receive(cuts.back());
        host::ThreadedQueue queue;
        communicator.reduce_scatter(send.data(), receive.data() + cuts[rank], cuts, &queue);
        communicator.all_gather(static_cast<float const*>(receive.data() + cuts[rank]),
                                receive.data(), cuts, &queue);
        queue.synchronise();
        queue.rethrow_failure();
        CHECK(equal_bits(receive, sums_of<float>(communicator.size(), 0, cuts.back(), 3)));
        CHECK(memory.allocated_bytes(BufferKind::communicator) == options.scratch_bytes);
        auto const& traffic = communicator.traffic();
        CHECK(traffic[CollectiveKind::reduce_scatter].elements == 100'000 * (world - 1));
        CHECK(traffic[CollectiveKind::all_gather].elements == 100'000 * (world - 1));
    }
    CHECK(memory.allocated_bytes(BufferKind::control) == 0);
}

TEST_CASE("More collectives than there is storage for are run in order") {
    mpi::Communicator communicator(mpi_session().world(), mpi_options());
    host::ThreadedQueue queue;
    host::ThreadedQueue other;
    std::vector<std::int64_t> values(2000, 1);
    for (std::size_t call = 0; call < values.size(); ++call) {
        communicator.all_reduce_integers(&values[call], 1, IntegerReduction::sum,
                                         call % 2 == 0 ? &queue : &other);
    }
    queue.synchronise();
    other.synchronise();
    CHECK(values == std::vector<std::int64_t>(2000, communicator.size()));
}

TEST_CASE("Ranks that call different collectives learn both calls") {
    if (mpi_session().size() == 1) {
        skip_without_ranks(2);
        return;
    }
    mpi::Communicator communicator(mpi_session().world(), impatient());
    host::InlineQueue queue;
    std::vector<std::int64_t> values(4, 1);
    bool const is_last = communicator.rank() + 1 == communicator.size();
    std::string const text = message_of<CollectiveMismatch>([&] {
        if (is_last) {
            communicator.broadcast(values.data(), 3, 0, &queue, {"values of parameter", 7});
        } else {
            communicator.all_reduce_integers(values.data(), 4, IntegerReduction::min, &queue,
                                             {"norm", 1});
        }
    });
    INFO(text);
    CHECK(contains(text, "all-reduce of integers of 4 int64 ('norm 1', minimum)"));
    CHECK(contains(text, "broadcast of 3 int64 ('values of parameter 7', root 0)"));
    CHECK(contains(text, "rank " + std::to_string(communicator.size() - 1) + " called broadcast"));
}

TEST_CASE("Ranks with the same call and other values of a tag do not receive one another's data") {
    if (mpi_session().size() == 1) {
        skip_without_ranks(2);
        return;
    }
    mpi::Communicator communicator(mpi_session().world(), impatient());
    host::InlineQueue queue;
    std::int64_t value = 1;
    std::string const text = message_of<CollectiveMismatch>([&] {
        communicator.all_reduce_integers(
            &value, 1, IntegerReduction::sum, &queue,
            {"overflow", communicator.rank() == 0 ? std::size_t{4} : std::size_t{5}});
    });
    INFO(text);
    CHECK(contains(text, "'overflow 4'"));
    CHECK(contains(text, "'overflow 5'"));
    CHECK(value == 1);
}

TEST_CASE("Options that differ between ranks are refused on all of them") {
    mpi::Options options = mpi_options();
    options.scratch_bytes =
        mpi_session().rank() == 0 ? std::size_t{1} << 16U : std::size_t{1} << 17U;
    std::string const text = message_of<LayoutMismatch>(
        [&] { mpi::Communicator const communicator(mpi_session().world(), options); });
    CHECK((mpi_session().size() == 1 || contains(text, "shares_memory must be equal")));
}

TEST_CASE("A rank waits half an hour for its peers unless told, and five seconds after a failure") {
    mpi::Options const options;
    CHECK(options.time_out == std::chrono::minutes(30));
    CHECK(options.heartbeat == std::chrono::seconds(1));
    CHECK(options.finish_time_out == std::chrono::seconds(5));
    CHECK(options.scratch_bytes == 8388608);
}

TEST_CASE("Options out of their range are refused before anything is sent") {
    for (int defect = 0; defect < 4; ++defect) {
        mpi::Options options = mpi_options();
        std::string const name = defect == 0   ? "time_out"
                                 : defect == 1 ? "heartbeat"
                                 : defect == 2 ? "finish_time_out"
                                               : "scratch_bytes";
        options.time_out *= defect == 0 ? 0 : 1;
        options.heartbeat *= defect == 1 ? -1 : 1;
        options.finish_time_out *= defect == 2 ? 0 : 1;
        options.scratch_bytes = defect == 3 ? std::size_t{1} << 31U : options.scratch_bytes;
        CHECK(contains(message_of<InvalidArgument>([&] {
                           mpi::Communicator const communicator(mpi_session().world(), options);
                       }),
                       "mpi::Options::" + name + " is "));
    }
    CHECK(contains(message_of<InvalidArgument>(
                       [] { mpi::Communicator const communicator(MPI_COMM_NULL, mpi_options()); }),
                   "MPI_COMM_NULL"));
    CHECK(contains(message_of<InvalidArgument>([] { mpi::Session const second; }),
                   "MPI initialised"));
}

TEST_CASE("A failure of a group reaches the group that it was split from, and the other parts") {
    if (mpi_session().size() < 4) {
        skip_without_ranks(4);
        return;
    }
    mpi::Communicator all(mpi_session().world(), impatient());
    auto part = all.split(all.rank() % 2, all.rank());
    host::InlineQueue queue;
    std::int64_t value = 1;
    // The abort may reach a rank in any of its calls. Ranks of the other part, and of the whole,
    // wait for a rank that never calls.
    std::string const text = message_of<Aborted>([&] {
        part.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
        if (all.rank() == 1) {
            part.abort("the reason of rank 1");
        }
        if (all.rank() == 3 || all.rank() == 2) {
            all.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
        }
        part.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
    });
    INFO(text);
    CHECK(contains(text, "the reason of rank 1"));
    CHECK(contains(message_of<Aborted>([&] { all.rethrow_failure(); }), "the reason of rank 1"));
}

TEST_CASE("A rank that fails in the middle of large transfers leaves none of them pending") {
    mpi::Communicator communicator(mpi_session().world(), impatient());
    auto const cuts = even_cuts(static_cast<std::size_t>(communicator.size()), 300'000);
    std::vector<float> send(cuts.back(), 1.0F);
    std::vector<float> receive(cuts.back());
    host::ThreadedQueue queue;
    std::string const text = message_of<CommunicatorError>([&] {
        for (int call = 0; call < 3; ++call) {
            communicator.all_reduce(static_cast<float const*>(send.data()), receive.data(), cuts,
                                    &queue);
            if (communicator.rank() == 0 && call == 1) {
                communicator.abort("the cause");
            }
        }
        queue.synchronise();
        queue.rethrow_failure();
        communicator.rethrow_failure();
    });
    CHECK(contains(text, "the cause"));
    // The end of the scope waits until no transfer is pending; the next cases, and MPI_Finalize,
    // show that MPI still works.
}

TEST_CASE("MPI works after failures") {
    mpi::Communicator communicator(mpi_session().world(), mpi_options());
    host::InlineQueue queue;
    std::int64_t value = 1;
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
    CHECK(value == communicator.size());
}

} // namespace zero::test::mpi_communicator_ranks_test
