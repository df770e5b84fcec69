#include "support/archetype.hpp"
#include "support/catch.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/communicator.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/comm/recording.hpp>

namespace zero::test::communicator_concept_test {

using test::Archetype;

namespace {

using Cuts = std::span<std::size_t const>;
using Queue = host::Queue*;

struct Category {
    using policy_category = CommunicatorCategory;
};
struct HasBackend {
    using Backend = HostBackend;
};
struct Rank {
    int rank() const;
};
struct Size {
    int size() const;
};
struct ReduceScatter {
    template <class T>
    void reduce_scatter(T const*, T*, Cuts, Queue, CollectiveTag);
};
struct AllGather {
    template <class T>
    void all_gather(T const*, T*, Cuts, Queue, CollectiveTag);
};
struct AllReduce {
    template <class T>
    void all_reduce(T const*, T*, Cuts, Queue, CollectiveTag);
};
struct Broadcast {
    template <class T>
    void broadcast(T*, std::size_t, int, Queue, CollectiveTag);
};
struct Integers {
    void all_reduce_integers(std::int64_t*, std::size_t, IntegerReduction, Queue, CollectiveTag);
};
struct Abort {
    void abort(std::string_view, bool) noexcept;
};

struct OtherCategory {
    using policy_category = OptimizerCategory;
};
struct QueuelessBackend {
    using Backend = int;
};
struct MutableRank {
    int rank();
};
struct MutableSize {
    int size();
};
struct UnscatteredReduce { // counts instead of cuts
    template <class T>
    void reduce_scatter(T const*, T*, std::size_t, Queue, CollectiveTag);
};
struct FloatReduceScatter {
    void reduce_scatter(float const*, float*, Cuts, Queue, CollectiveTag);
};
struct FloatAllGather {
    void all_gather(float const*, float*, Cuts, Queue, CollectiveTag);
};
struct FloatAllReduce {
    void all_reduce(float const*, float*, Cuts, Queue, CollectiveTag);
};
struct FloatBroadcast {
    void broadcast(float*, std::size_t, int, Queue, CollectiveTag);
};
struct TaglessAllGather {
    template <class T>
    void all_gather(T const*, T*, Cuts, Queue);
};
struct QueuelessAllReduce {
    template <class T>
    void all_reduce(T const*, T*, Cuts, CollectiveTag);
};
struct RootlessBroadcast {
    template <class T>
    void broadcast(T*, std::size_t, Queue, CollectiveTag);
};
struct UnreducedIntegers {
    void all_reduce_integers(std::int64_t*, std::size_t, Queue, CollectiveTag);
};
struct ThrowingAbort {
    void abort(std::string_view, bool);
};

template <class... Changed>
constexpr bool is_communicator = Communicator<Archetype<Changed...>>;

/// A communicator and one more part.
template <class... Parts>
struct Whole : Category,
               HasBackend,
               Rank,
               Size,
               ReduceScatter,
               AllGather,
               AllReduce,
               Broadcast,
               Integers,
               Abort,
               Parts... {};

struct Splittable : Whole<> {
    Splittable split(int color, int key);
};
struct SplitWithoutKey : Whole<> {
    SplitWithoutKey split(int color);
};
struct SplitIntoPointer : Whole<> {
    SplitIntoPointer* split(int color, int key);
};
struct SplitIntoOther : Whole<> {
    Splittable split(int color, int key);
};
struct Exchanging : Whole<> {
    template <class T>
    void exchange(T const*, T*, Cuts, Queue, CollectiveTag);
};
struct FloatExchange : Whole<> {
    void exchange(float const*, float*, Cuts, Queue, CollectiveTag);
};
struct TaglessExchange : Whole<> {
    template <class T>
    void exchange(T const*, T*, Cuts, Queue);
};
struct ExchangeInPlace : Whole<> {
    template <class T>
    void exchange(T*, Cuts, Queue, CollectiveTag);
};
struct ExchangeAlone { // not a communicator
    template <class T>
    void exchange(T const*, T*, Cuts, Queue, CollectiveTag);
};
struct SplitAlone { // not a communicator
    SplitAlone split(int color, int key);
};

} // namespace

TEST_CASE("The shipped communicators model their concept without a diagnosis") {
    STATIC_REQUIRE(Communicator<LoopbackCommunicator>);
    STATIC_REQUIRE(Communicator<Recording<LoopbackCommunicator>>);
    STATIC_REQUIRE(Communicator<Checked<LoopbackCommunicator>>);
    STATIC_REQUIRE(diagnose_communicator<LoopbackCommunicator>());
    STATIC_REQUIRE(diagnose_communicator<Recording<LoopbackCommunicator>>());
    STATIC_REQUIRE(diagnose_communicator<Checked<LoopbackCommunicator>>());
}

TEST_CASE("A communicator is a category, a backend, rank and size, five collectives and an abort") {
    STATIC_REQUIRE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                   AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE(
        diagnose_communicator<Archetype<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                        AllReduce, Broadcast, Integers, Abort>>());
}

TEST_CASE("A type that lacks one requirement is not a communicator") {
    STATIC_REQUIRE_FALSE(is_communicator<HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, Rank, Size, ReduceScatter, AllGather, AllReduce,
                                         Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Size, ReduceScatter, AllGather,
                                         AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, ReduceScatter, AllGather,
                                         AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, AllGather, AllReduce,
                                         Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllReduce,
                                         Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         AllReduce, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         AllReduce, Broadcast, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         AllReduce, Broadcast, Integers>);
}

TEST_CASE("A type with one requirement of the wrong form is not a communicator") {
    STATIC_REQUIRE_FALSE(is_communicator<OtherCategory, HasBackend, Rank, Size, ReduceScatter,
                                         AllGather, AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, QueuelessBackend, Rank, Size, ReduceScatter,
                                         AllGather, AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, MutableRank, Size, ReduceScatter,
                                         AllGather, AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, MutableSize, ReduceScatter,
                                         AllGather, AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, UnscatteredReduce,
                                         AllGather, AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter,
                                         TaglessAllGather, AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         QueuelessAllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         AllReduce, RootlessBroadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         AllReduce, Broadcast, UnreducedIntegers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         AllReduce, Broadcast, Integers, ThrowingAbort>);
}

TEST_CASE("A type that supports a single element type is not a communicator") {
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, FloatReduceScatter,
                                         AllGather, AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter,
                                         FloatAllGather, AllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         FloatAllReduce, Broadcast, Integers, Abort>);
    STATIC_REQUIRE_FALSE(is_communicator<Category, HasBackend, Rank, Size, ReduceScatter, AllGather,
                                         AllReduce, FloatBroadcast, Integers, Abort>);
}

TEST_CASE("A communicator that can be split returns one of its own type") {
    STATIC_REQUIRE(SplittableCommunicator<Splittable>);
    STATIC_REQUIRE(diagnose_splittable_communicator<Splittable>());
    STATIC_REQUIRE(diagnose_splittable_communicator<LoopbackCommunicator>());
    STATIC_REQUIRE(Communicator<Whole<>>);
    STATIC_REQUIRE_FALSE(SplittableCommunicator<Whole<>>);
    STATIC_REQUIRE_FALSE(SplittableCommunicator<SplitWithoutKey>);
    STATIC_REQUIRE_FALSE(SplittableCommunicator<SplitIntoPointer>);
    STATIC_REQUIRE_FALSE(SplittableCommunicator<SplitIntoOther>);
    STATIC_REQUIRE_FALSE(SplittableCommunicator<SplitAlone>);
}

TEST_CASE("A communicator that exchanges takes every type, cuts, a queue and a tag") {
    STATIC_REQUIRE(ExchangingCommunicator<Exchanging>);
    STATIC_REQUIRE(diagnose_exchanging_communicator<Exchanging>());
    STATIC_REQUIRE(diagnose_exchanging_communicator<LoopbackCommunicator>());
    STATIC_REQUIRE(diagnose_exchanging_communicator<Checked<Recording<LoopbackCommunicator>>>());
    STATIC_REQUIRE_FALSE(ExchangingCommunicator<Whole<>>);
    STATIC_REQUIRE_FALSE(ExchangingCommunicator<FloatExchange>);
    STATIC_REQUIRE_FALSE(ExchangingCommunicator<TaglessExchange>);
    STATIC_REQUIRE_FALSE(ExchangingCommunicator<ExchangeInPlace>);
    STATIC_REQUIRE_FALSE(ExchangingCommunicator<ExchangeAlone>);
}

} // namespace zero::test::communicator_concept_test
