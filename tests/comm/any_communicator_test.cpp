#include "support/catch.hpp"
#include "support/outcome.hpp"

#include <zero/comm/any_communicator.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/comm/recording.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// A communicator that is chosen at run time forwards every optional member. A missing member would
// silently change plans, checks or failures.

namespace zero::test::any_communicator_test {

namespace {

using zero::LoopbackCommunicator;

/// A communicator with every optional member; it only counts calls.
struct Counting : zero::Recording<LoopbackCommunicator> {
    using Recording::Recording;
    static constexpr bool is_checked = true;
    int forgotten = 0;
    int added = 0;
    int reduced_together = 0;
    int synchronised = 0;

    [[nodiscard]] std::uint64_t options_hash() const noexcept { return 41; }
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest) const noexcept {
        return largest + 1;
    }
    [[nodiscard]] std::string_view reason_against_tree() const noexcept { return "no tree"; }
    void rethrow_failure() { throw zero::TimedOut("zero: the transport noticed it later"); }
    void synchronise() { ++synchronised; }
    void forget_events() noexcept { ++forgotten; }
    void all_reduce_integers(std::int64_t* values, std::size_t elements,
                             zero::IntegerReduction reduction, Queue queue,
                             zero::CollectiveTag tag = {}) {
        Recording::all_reduce_integers(values, elements, reduction, queue, tag);
    }
    void all_reduce_integers(std::int64_t*, std::size_t sums, std::size_t minima, Queue,
                             zero::CollectiveTag = {}) {
        reduced_together += static_cast<int>(10 * sums + minima);
    }
    template <class T>
    void reduce_scatter(T const*, T*, std::span<std::size_t const>, Queue, zero::CollectiveTag) {}
    template <class T, class A>
    void reduce_scatter(T const*, A*, std::span<std::size_t const>, Queue, zero::CollectiveTag,
                        bool is_added) {
        added += is_added ? 1 : 0;
    }
};

/// A communicator that learns of failures later and cannot wait for its collectives.
struct Failing : Counting {
    using Counting::Counting;
    void synchronise() = delete;
};

/// A communicator without any optional member.
struct Plain {
    using policy_category = zero::CommunicatorCategory;
    using Backend = zero::HostBackend;
    using Queue = Backend::Queue;
    using Cuts = std::span<std::size_t const>;

    [[nodiscard]] int rank() const { return 0; }
    [[nodiscard]] int size() const { return 1; }
    template <class T>
    void reduce_scatter(T const*, T*, Cuts, Queue, zero::CollectiveTag) {}
    template <class T>
    void all_gather(T const*, T*, Cuts, Queue, zero::CollectiveTag) {}
    template <class T>
    void all_reduce(T const*, T*, Cuts, Queue, zero::CollectiveTag) {}
    template <class T>
    void broadcast(T*, std::size_t, int, Queue, zero::CollectiveTag) {}
    void all_reduce_integers(std::int64_t*, std::size_t, zero::IntegerReduction, Queue,
                             zero::CollectiveTag) {}
    void abort(std::string_view, bool) noexcept {}
};

using Any = zero::AnyCommunicator<Counting, Plain>;
static_assert(zero::Communicator<Any>);
static_assert(zero::AnyCommunicator<Counting>::is_checked);
static_assert(!Any::is_checked); // not every choice is
static_assert(zero::AnyCommunicator<Counting, LoopbackCommunicator>::compares_calls);
static_assert(!Any::compares_calls && !zero::AnyCommunicator<Plain, Counting>::compares_calls);

struct Group {
    std::vector<LoopbackCommunicator> ranks = LoopbackCommunicator::make_group(1);
    Counting counting{ranks[0]};
    Plain plain;
};

} // namespace

TEST_CASE("The chosen communicator forwards the hash of options, the scratch memory and the reason "
          "against a tree") {
    Group group;
    Any const chosen(&group.counting);
    CHECK(chosen.options_hash() == 41);
    CHECK(chosen.scratch_bytes(1000) == 1001);
    CHECK(chosen.reason_against_tree() == "no tree");
    Any const other(&group.plain);
    CHECK(other.options_hash() == 0);
    CHECK(other.scratch_bytes(1000) == 0);
    CHECK(other.reason_against_tree().empty());
}

TEST_CASE("The chosen communicator forwards a failure that was noticed later") {
    Group group;
    Any chosen(&group.counting);
    CHECK_THROWS_AS(chosen.rethrow_failure(), zero::TimedOut);
    CHECK_NOTHROW(Any(&group.plain).rethrow_failure());
}

TEST_CASE("The chosen communicator waits for its collectives, or looks for their failures") {
    Group group;
    Failing failing(group.ranks[0]);
    using Choice = zero::AnyCommunicator<Counting, Failing, Plain>;
    Choice(&group.counting).synchronise();
    CHECK(group.counting.synchronised == 1);
    CHECK_THROWS_AS(Choice(&failing).synchronise(), zero::TimedOut);
    CHECK_NOTHROW(Choice(&group.plain).synchronise());
    CHECK(group.counting.synchronised == 1);
}

TEST_CASE("The chosen communicator sums and minimises integers together only if every choice can") {
    Group group;
    using Together = zero::AnyCommunicator<Counting>;
    Together chosen(&group.counting);
    std::array<std::int64_t, 5> values{};
    chosen.all_reduce_integers(values.data(), 2, 3, zero::HostBackend::default_compute_queue());
    CHECK(group.counting.reduced_together == 23);
    STATIC_REQUIRE(zero::detail::ReducesIntegersTogether<Together>);
    STATIC_REQUIRE_FALSE(zero::detail::ReducesIntegersTogether<Any>);
}

TEST_CASE("The chosen communicator forgets events for the capture of a graph") {
    Group group;
    Any chosen(&group.counting);
    chosen.forget_events();
    CHECK(group.counting.forgotten == 1);
    Any(&group.plain).forget_events(); // a no-op
    CHECK(group.counting.forgotten == 1);
}

TEST_CASE("The chosen communicator adds sums only if every choice can") {
    Group group;
    using Accumulating = zero::AnyCommunicator<Counting>;
    Accumulating chosen(&group.counting);
    std::array<std::size_t, 2> const cuts{0, 1};
    float const value = 1.0F;
    float sum = 0.0F;
    auto const queue = zero::HostBackend::default_compute_queue();
    chosen.reduce_scatter(&value, &sum, cuts, queue, {}, true);
    chosen.reduce_scatter(&value, &sum, cuts, queue, {}, false);
    CHECK(group.counting.added == 1);
    STATIC_REQUIRE(zero::detail::AccumulatesReduceScatter<Accumulating, float, float>);
    STATIC_REQUIRE_FALSE(zero::detail::AccumulatesReduceScatter<Any, float, float>);
}

} // namespace zero::test::any_communicator_test
