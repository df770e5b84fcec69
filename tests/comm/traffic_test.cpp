// Literal expectations for the data that a rank reads from other ranks and for a recorder's counts.

#include "report.hpp"
#include "values.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/run_ranks.hpp>

#include <array>
#include <chrono>
#include <string>
#include <vector>

namespace zero::test::traffic_test {

namespace {

constexpr LoopbackOptions options{.time_out = std::chrono::seconds(60)};

std::string to_text(CollectiveCount const& count) {
    return std::to_string(count.calls) + " calls, " + std::to_string(count.elements) + " elements, "
           + std::to_string(count.bytes) + " bytes";
}

/// Calls each collective once, with extents 10, 0, 5, 1 in bfloat16 where there are cuts.
template <class Communicator>
void call_all(Communicator& c) {
    auto const cuts = cuts_of({10, 0, 5, 1});
    auto const begin = cuts[static_cast<std::size_t>(c.rank())];
    std::vector<bfloat16> values(16);
    std::array<std::int64_t, 7> integers{};
    auto const queue = HostBackend::default_compute_queue();
    bfloat16 const* const in = values.data();
    c.reduce_scatter(in, values.data() + begin, cuts, queue);
    c.all_gather(in + begin, values.data(), cuts, queue);
    c.all_reduce(in, values.data(), cuts, queue);
    std::vector<bfloat16> pieces(40);
    c.exchange(in, pieces.data(), cuts, queue);
    c.broadcast(values.data(), 16, 2, queue);
    c.all_reduce_integers(integers.data(), 7, IntegerReduction::min, queue);
    c.all_reduce_integers(integers.data(), 7, IntegerReduction::sum, queue);
}

} // namespace

TEST_CASE("Loopback counts the data that each rank reads from the others") {
    Report report;
    run_ranks(4, options, [&](LoopbackCommunicator& c) {
        // own extent 10, 0, 5, 1 of 16: a sum reads it from 3 peers, a gather reads the rest
        constexpr std::array<std::uint64_t, 4> scattered{30, 0, 15, 3};
        constexpr std::array<std::uint64_t, 4> gathered{6, 16, 11, 15};
        constexpr std::array<std::uint64_t, 4> broadcast{16, 16, 0, 16};
        auto const rank = static_cast<std::size_t>(c.rank());
        for (std::uint64_t calls = 1; calls <= 2; ++calls) {
            call_all(c);
            auto const& traffic = c.traffic();
            auto const expect = [&](CollectiveKind kind, CollectiveCount const& expected) {
                report.expect(traffic[kind] == expected, std::string(name_of(kind)) + " on rank "
                                                             + std::to_string(rank) + ": "
                                                             + to_text(traffic[kind]));
            };
            expect(CollectiveKind::reduce_scatter,
                   {calls, calls * scattered[rank], calls * scattered[rank] * 2});
            expect(CollectiveKind::exchange, // the same pieces, not added
                   {calls, calls * scattered[rank], calls * scattered[rank] * 2});
            expect(CollectiveKind::all_gather,
                   {calls, calls * gathered[rank], calls * gathered[rank] * 2});
            expect(CollectiveKind::all_reduce, {calls, calls * (scattered[rank] + gathered[rank]),
                                                calls * (scattered[rank] + gathered[rank]) * 2});
            expect(CollectiveKind::broadcast,
                   {calls, calls * broadcast[rank], calls * broadcast[rank] * 2});
            expect(CollectiveKind::integers, {2 * calls, calls * 42, calls * 42 * 8});
        }
        c.reset_traffic();
        report.expect(c.traffic()[CollectiveKind::integers] == CollectiveCount{},
                      "traffic after a reset");
    });
    report.check();
}

TEST_CASE("A single rank reads no data from others, and its sums are copies") {
    run_ranks(1, options, [&](LoopbackCommunicator& c) {
        std::vector<float> const values = values_of<float>(0, 100, 1);
        std::vector<float> out(100);
        auto const cuts = cuts_of({100});
        c.all_reduce(values.data(), out.data(), cuts, HostBackend::default_compute_queue());
        CHECK(equal_bits(values, out));
        out.assign(100, 0.0F);
        c.reduce_scatter(values.data(), out.data(), cuts, HostBackend::default_compute_queue());
        CHECK(equal_bits(values, out));
        for (auto const& count : c.traffic().kinds) {
            CHECK(count.elements == 0);
        }
        CHECK(c.traffic()[CollectiveKind::all_reduce].calls == 1);
    });
}

TEST_CASE("Recording counts the payload of each call, the same on every rank") {
    Report report;
    run_ranks(4, options, [&](LoopbackCommunicator& inner) {
        Recording<LoopbackCommunicator> c(inner);
        call_all(c);
        auto const& recorded = c.recorded();
        report.expect(recorded[CollectiveKind::reduce_scatter] == CollectiveCount{1, 16, 32},
                      "reduce-scatter");
        report.expect(recorded[CollectiveKind::all_gather] == CollectiveCount{1, 16, 32},
                      "all-gather");
        report.expect(recorded[CollectiveKind::all_reduce] == CollectiveCount{1, 16, 32},
                      "all-reduce");
        report.expect(recorded[CollectiveKind::exchange] == CollectiveCount{1, 16, 32}, "exchange");
        report.expect(recorded[CollectiveKind::broadcast] == CollectiveCount{1, 16, 32},
                      "broadcast");
        report.expect(recorded[CollectiveKind::integers] == CollectiveCount{2, 14, 112},
                      "integers");
        c.reset_recorded();
        report.expect(c.recorded()[CollectiveKind::integers] == CollectiveCount{},
                      "recorded after a reset");
    });
    report.check();
}

TEST_CASE("Decorators stack, and a recorder over a checked communicator is checked") {
    using CheckedLoopback = Checked<LoopbackCommunicator>;
    STATIC_REQUIRE(CheckedLoopback::is_checked);
    STATIC_REQUIRE(Recording<CheckedLoopback>::is_checked);
    STATIC_REQUIRE_FALSE(Recording<LoopbackCommunicator>::is_checked);
    STATIC_REQUIRE(Communicator<Recording<CheckedLoopback>>);
    Report report;
    run_ranks(4, options, [&](LoopbackCommunicator& inner) {
        CheckedLoopback checked(inner);
        Recording<CheckedLoopback> c(checked);
        call_all(c);
        report.expect(inner.traffic()[CollectiveKind::all_gather].calls == 8,
                      "seven signatures and one gather");
    });
    report.check();
}

} // namespace zero::test::traffic_test
