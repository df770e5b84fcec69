// A decorated communicator offers an optional operation exactly if the other one does.

#include "support/archetype.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/comm/any_communicator.hpp>
#include <zero/comm/checked.hpp>
#include <zero/comm/hierarchical.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/timed.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zero::test::decorators_test {

namespace {

using Cuts = std::span<std::size_t const>;
using Queue = host::Queue*;

/// A communicator with no optional part.
struct Plain {
    using policy_category = CommunicatorCategory;
    using Backend = HostBackend;
    int rank() const;
    int size() const;
    template <class T>
    void reduce_scatter(T const*, T*, Cuts, Queue, CollectiveTag = {});
    template <class T>
    void all_gather(T const*, T*, Cuts, Queue, CollectiveTag = {});
    template <class T>
    void all_reduce(T const*, T*, Cuts, Queue, CollectiveTag = {});
    template <class T>
    void broadcast(T*, std::size_t, int, Queue, CollectiveTag = {});
    void all_reduce_integers(std::int64_t*, std::size_t, IntegerReduction, Queue,
                             CollectiveTag = {});
    void abort(std::string_view, bool = false) noexcept;
};

// One class for each optional part.
struct Accumulates : Plain {
    using Plain::reduce_scatter;
    template <class T, class A>
    void reduce_scatter(T const*, A*, Cuts, Queue, CollectiveTag, bool);
};
struct ReadsPieces : Plain {
    using Plain::reduce_scatter;
    template <class T, class A>
    void reduce_scatter(SentPieces<T>, A*, Cuts, Queue, CollectiveTag, bool);
};
struct ReducesTogether : Plain {
    using Plain::all_reduce_integers;
    void all_reduce_integers(std::int64_t*, std::size_t, std::size_t, Queue, CollectiveTag = {});
};
struct ComparesCalls : Plain {
    static constexpr bool compares_calls = true;
};
struct IsChecked : Plain {
    static constexpr bool is_checked = true;
};
struct Rethrows : Plain {
    void rethrow_failure();
};
struct Synchronises : Plain {
    void synchronise();
};
struct HasOptionsHash : Plain {
    std::uint64_t options_hash() const noexcept;
};
struct HasScratch : Plain {
    std::size_t scratch_bytes(std::size_t) const noexcept;
};
struct SharesProcess : Plain {
    bool shares_process() const noexcept;
};
struct KnowsRanks : Plain {
    std::size_t ranks_in_process() const noexcept;
};
struct Groups : Plain {
    void grouped(Queue, auto const&);
};
struct Exchanges : Plain {
    template <class T>
    void exchange(T const*, T*, Cuts, Queue, CollectiveTag = {});
};
struct AddsInTree : Plain {
    using Plain::reduce_scatter;
    template <class T, class A>
    void reduce_scatter(T const*, ops::TreeSum<A> const&, Cuts, Queue, CollectiveTag = {});
    int position() const noexcept;
};
struct ForbidsTrees : Plain {
    std::string_view reason_against_tree() const noexcept;
};
struct HasPosition : Plain {
    int position() const noexcept;
};
struct HasParts : Plain {
    std::size_t inadmissible_ranks(ops::MicroBatchTree const&) const noexcept;
};
struct ForgetsEvents : Plain {
    void forget_events() noexcept;
};

struct SharesMemory : Plain {
    MemoryResource& shared_memory() const noexcept;
};

/// One character for each optional part, which is '-' if `C` lacks it.
template <class C>
std::string offers() {
    std::string result;
    auto const add = [&](bool is_offered, char letter) { result += is_offered ? letter : '-'; };
    add(detail::AccumulatesReduceScatter<C, bfloat16, float>, 'a');
    add(detail::ReducesIntegersTogether<C>, 't');
    add(
        requires { requires C::compares_calls; }, 'c');
    add(
        requires { requires C::is_checked; }, 'k');
    add(
        requires(C& c) { c.rethrow_failure(); }, 'r');
    add(
        requires(C& c) { c.synchronise(); }, 's');
    add(
        requires(C const& c) { c.options_hash(); }, 'o');
    add(
        requires(C const& c) { c.scratch_bytes(1); }, 'b');
    add(
        requires(C& c) { c.forget_events(); }, 'f');
    add(
        requires(C const& c) { c.shares_process(); }, 'p');
    add(detail::GroupsGathers<C>, 'g');
    add(ExchangingCommunicator<C>, 'x');
    add(detail::ReduceScattersInTree<C, bfloat16, float>, 'e');
    add(
        requires(C const& c) { c.reason_against_tree(); }, 'w');
    add(
        requires(C const& c) { c.position(); }, 'n');
    add(
        requires(C const& c) { c.inadmissible_ranks(ops::MicroBatchTree{}); }, 'i');
    add(detail::ReduceScattersPieces<C, bfloat16, float>, 'l');
    add(
        requires(C const& c) { c.ranks_in_process(); }, 'h');
    add(
        requires(C const& c) { c.shared_memory(); }, 'm');
    return result;
}

/// `offers` of a decorator that has the parts in `own` whatever it decorates, and lacks those that
/// are blank there.
std::string with(std::string offered, std::string const& own) {
    for (std::size_t part = 0; part < own.size(); ++part) {
        offered[part] = own[part] == '-' ? offered[part] : own[part] == ' ' ? '-' : own[part];
    }
    return offered;
}

} // namespace

TEMPLATE_TEST_CASE(
    "A decorated communicator has an optional operation exactly if the other one has "
    "it",
    "", Plain, Accumulates, ReadsPieces, ReducesTogether, ComparesCalls, IsChecked, Rethrows,
    Synchronises, HasOptionsHash, HasScratch, ForgetsEvents, SharesProcess, KnowsRanks, Groups,
    Exchanges, AddsInTree, ForbidsTrees, HasPosition, HasParts, SharesMemory,
    LoopbackCommunicator) {
    std::string const offered = offers<TestType>();
    CHECK((offered == std::string(19, '-')) == std::is_same_v<TestType, Plain>);
    CHECK(offers<Recording<TestType>>() == offered);
    CHECK(offers<Timed<TestType>>() == with(offered, std::string(17, '-') + ' '));
    CHECK(offers<Checked<TestType>>() == with(offered, "--ck---b-- -"));
    CHECK(offers<Recording<Checked<TestType>>>() == with(offered, "--ck---b-- -"));
    // Two levels have a hash, scratch and shared memory, events and positions of their own, pass
    // failures on, and do not exchange. What they send between groups are sums at one address.
    std::string const of_two_levels = "----rsobfp  -wni  m";
    CHECK(offers<Hierarchical<TestType, TestType>>() == with(offered, of_two_levels));
    CHECK(offers<Hierarchical<Plain, TestType>>() == with(offers<Plain>(), of_two_levels));
    CHECK(offers<Hierarchical<TestType, Plain>>() == with(offers<Plain>(), of_two_levels));
    // A choice has operations that all have, and answers for a property that one lacks. It reads
    // pieces if one of them does, and says whether that was chosen.
    std::string const answered = "----rsobfp---wni-hm";
    STATIC_REQUIRE(Communicator<AnyCommunicator<TestType>>);
    CHECK(offers<AnyCommunicator<TestType>>() == with(offered, answered));
    CHECK(offers<AnyCommunicator<Plain, TestType>>()
          == with(offers<Plain>(), answered.substr(0, 16) + offered[16] + "hm"));
    STATIC_REQUIRE(Communicator<Timed<TestType>> && Communicator<Checked<Recording<TestType>>>);
}

TEST_CASE("An abort through a decorator is final unless the caller calls it provisional") {
    struct Aborts : Plain {
        bool is_provisional = true;
        void abort(std::string_view /*cause*/, bool provisional = false) noexcept {
            is_provisional = provisional;
        }
    };
    Aborts inner;
    Recording<Aborts> decorated(inner);
    decorated.abort("a cause");
    CHECK_FALSE(inner.is_provisional);
    decorated.abort("a cause", true);
    CHECK(inner.is_provisional);
}

TEST_CASE("A timeline shows a collective under the purpose of its tag, and without one under that "
          "of its operation") {
    using Phases = std::vector<TimelinePhase>;
    auto const ranks = on_ranks<Phases>(2, [](LoopbackCommunicator& inner) {
        Timeline timeline(inner.rank());
        Timed<LoopbackCommunicator> communicator(inner, &timeline);
        std::array<std::size_t, 3> const cuts{0, 1, 2};
        std::array<float, 2> values{};
        std::array<float, 2> results{};
        auto const queue = HostBackend::default_compute_queue();
        float const* const own = values.data() + inner.rank();
        for (auto const purpose :
             {CollectivePurpose::other, CollectivePurpose::gather, CollectivePurpose::publish,
              CollectivePurpose::reduce, CollectivePurpose::decide}) {
            communicator.all_gather(own, results.data(), cuts, queue,
                                    {.what = "gradient", .purpose = purpose});
        }
        communicator.reduce_scatter(values.data(), results.data(), cuts, queue);
        communicator.all_reduce(values.data(), results.data(), cuts, queue);
        communicator.exchange(values.data(), results.data(), cuts, queue);
        communicator.broadcast(results.data(), 2, 0, queue);
        std::int64_t integer = 1;
        communicator.all_reduce_integers(&integer, 1, IntegerReduction::sum, queue);
        Phases phases;
        for (std::size_t span = 0; span < timeline.size(); ++span) {
            phases.push_back(timeline[span].phase);
        }
        return phases;
    });
    using enum TimelinePhase;
    Phases const expected{publish, gather, publish, reduce,  decide, // all-gathers
                          reduce,  reduce, reduce,  publish, decide};
    CHECK(ranks == std::vector<Phases>(2, expected));
}

namespace {

/// A communicator whose collectives may start together.
struct Grouping : LoopbackCommunicator {
    explicit Grouping(LoopbackCommunicator&& own) : LoopbackCommunicator(std::move(own)) {}
    template <class Body>
    void grouped(Queue /*queue*/, Body const& body) {
        body();
    }
};

} // namespace

TEST_CASE("A timeline shows the collectives of a group as one span with the bytes of all") {
    using Bytes = std::vector<std::uint64_t>;
    auto const ranks = on_ranks<Bytes>(2, [](LoopbackCommunicator& inner) {
        Timeline timeline(inner.rank());
        Grouping grouping(inner.split(0, inner.rank()));
        Timed<Grouping> communicator(grouping, &timeline);
        std::array<float, 4> values{};
        auto const queue = HostBackend::default_compute_queue();
        communicator.grouped(queue, [&] {
            communicator.broadcast(values.data(), 4, 0, queue);
            communicator.broadcast(values.data(), 2, 0, queue);
        });
        Bytes bytes;
        for (std::size_t span = 0; span < timeline.size(); ++span) {
            bytes.push_back(timeline[span].bytes);
        }
        return bytes;
    });
    CHECK(ranks == std::vector<Bytes>(2, Bytes{24}));
}

} // namespace zero::test::decorators_test
