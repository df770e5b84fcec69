#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../core/policy_category.hpp"
#include "../../ops/tree_sum.hpp"
#include "../collective_tag.hpp"
#include "../communicator.hpp"
#include "../grouped_communicator.hpp"
#include "../traffic_count.hpp"
#include "collective_call.hpp"
#include "optional_operations.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief A collective that a decorator passes on.
struct DecoratedCall {
    CollectiveKind kind;
    std::size_t count;                 ///< elements of all extents
    std::uint64_t detail;              ///< as in `CollectiveCall`; 0 for an operation with cuts
    std::span<std::size_t const> cuts; ///< empty for an operation without them; not checked
    CollectiveTag tag;
};

/// @brief The base of communicators that pass every call on to another one. It offers an optional
/// operation exactly if the other one does.
/// @tparam Decorator the derived class. Its `around<T>(call, queue, forward)` does what it adds to
/// a collective of `T`, and calls `forward()` once. It may hide members.
/// @tparam C the other communicator
/// @tparam B the backend of engines on the decorator
/// @tparam KeepsRoles whether it passes on the roles of `C` as well
template <class Decorator, class C, class B = typename C::Backend, bool KeepsRoles = false>
class CommunicatorDecorator {
    static_assert(KeepsRoles || !HasGroups<C>,
                  "zero: a decorator hides the parts of zero::Groups, so an engine on it would run "
                  "flat; decorate the parts, and give them to zero::Groups.");

public:
    using policy_category = CommunicatorCategory;
    using Backend = B;
    using Queue = typename Backend::Queue;
    static constexpr bool is_checked = requires { requires C::is_checked; };
    static constexpr bool compares_calls = detail::compares_calls<C>;

    [[nodiscard]] int rank() const noexcept { return _inner->rank(); }
    [[nodiscard]] int size() const noexcept { return _inner->size(); }

    [[nodiscard]] std::uint64_t options_hash() const noexcept
        requires requires(C const& inner) { inner.options_hash(); }
    {
        return _inner->options_hash();
    }

    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept
        requires requires(C const& inner) { inner.scratch_bytes(largest_bucket_bytes); }
    {
        return _inner->scratch_bytes(largest_bucket_bytes);
    }

    [[nodiscard]] MemoryResource& shared_memory() const noexcept
        requires requires(C const& inner) { inner.shared_memory(); }
    {
        return _inner->shared_memory();
    }

    [[nodiscard]] std::string_view reason_against_tree() const noexcept
        requires requires(C const& inner) { inner.reason_against_tree(); }
    {
        return _inner->reason_against_tree();
    }

    [[nodiscard]] int position() const noexcept
        requires requires(C const& inner) { inner.position(); }
    {
        return _inner->position();
    }

    [[nodiscard]] std::size_t inadmissible_ranks(ops::MicroBatchTree const& tree) const noexcept
        requires requires(C const& inner) { inner.inadmissible_ranks(tree); }
    {
        return _inner->inadmissible_ranks(tree);
    }

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        pass<T>(with_cuts(CollectiveKind::reduce_scatter, cuts, tag), queue,
                [&] { _inner->reduce_scatter(send, receive, cuts, queue, tag); });
    }

    template <class T, class A>
        requires AccumulatesReduceScatter<C, T, A>
    void reduce_scatter(T const* send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        pass<T>(with_cuts(CollectiveKind::reduce_scatter, cuts, tag), queue,
                [&] { _inner->reduce_scatter(send, sum, cuts, queue, tag, is_added); });
    }

    template <class T, class A>
    [[nodiscard]] bool reads_pieces() const noexcept
        requires requires(C const& inner) { inner.template reads_pieces<T, A>(); }
    {
        return _inner->template reads_pieces<T, A>();
    }

    template <class T, class A>
        requires ReduceScattersPieces<C, T, A>
    void reduce_scatter(SentPieces<T> send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        pass<T>(with_cuts(CollectiveKind::reduce_scatter, cuts, tag), queue,
                [&] { _inner->reduce_scatter(send, sum, cuts, queue, tag, is_added); });
    }

    template <class T, class A>
        requires ReduceScattersInTree<C, T, A>
    void reduce_scatter(T const* send, ops::TreeSum<A> const& sum,
                        std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        pass<T>(with_cuts(CollectiveKind::reduce_scatter, cuts, tag), queue,
                [&] { _inner->reduce_scatter(send, sum, cuts, queue, tag); });
    }

    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        pass<T>(with_cuts(CollectiveKind::all_gather, cuts, tag), queue,
                [&] { _inner->all_gather(send, receive, cuts, queue, tag); });
    }

    template <class T>
        requires HasExchange<C>
    void exchange(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                  CollectiveTag tag = {}) {
        pass<T>(with_cuts(CollectiveKind::exchange, cuts, tag), queue,
                [&] { _inner->exchange(send, receive, cuts, queue, tag); });
    }

    template <class Body>
        requires GroupsGathers<C>
    void grouped(Queue queue, Body const& body) {
        _inner->grouped(queue, body);
    }

    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        pass<T>(with_cuts(CollectiveKind::all_reduce, cuts, tag), queue,
                [&] { _inner->all_reduce(send, receive, cuts, queue, tag); });
    }

    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        pass<T>({CollectiveKind::broadcast, elements, static_cast<std::uint64_t>(root), {}, tag},
                queue, [&] { _inner->broadcast(buffer, elements, root, queue, tag); });
    }

    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        pass<std::int64_t>(
            {CollectiveKind::integers, elements, static_cast<std::uint64_t>(reduction), {}, tag},
            queue, [&] { _inner->all_reduce_integers(values, elements, reduction, queue, tag); });
    }

    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {})
        requires ReducesIntegersTogether<C>
    {
        pass<std::int64_t>(
            {CollectiveKind::integers, sums + minima, CollectiveCall::detail_of(sums), {}, tag},
            queue, [&] { _inner->all_reduce_integers(values, sums, minima, queue, tag); });
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _inner->abort(cause, is_provisional);
    }

    void rethrow_failure()
        requires requires(C& inner) { inner.rethrow_failure(); }
    {
        _inner->rethrow_failure();
    }

    void synchronise()
        requires requires(C& inner) { inner.synchronise(); }
    {
        _inner->synchronise();
    }

    [[nodiscard]] std::size_t ranks_in_process() const noexcept
        requires requires(C const& inner) { inner.ranks_in_process(); }
    {
        return _inner->ranks_in_process();
    }

    [[nodiscard]] bool shares_process() const noexcept
        requires requires(C const& inner) { inner.shares_process(); }
    {
        return _inner->shares_process();
    }

    void forget_events() noexcept
        requires requires(C& inner) { inner.forget_events(); }
    {
        _inner->forget_events();
    }

protected:
    explicit CommunicatorDecorator(C& inner) noexcept : _inner(&inner) {}

    [[nodiscard]] C& inner() const noexcept { return *_inner; }

private:
    static DecoratedCall with_cuts(CollectiveKind kind, std::span<std::size_t const> cuts,
                                   CollectiveTag const& tag) noexcept {
        return {kind, cuts.empty() ? 0 : cuts.back(), 0, cuts, tag};
    }

    template <class T, class Forward>
    void pass(DecoratedCall const& call, Queue queue, Forward const& forward) {
        static_cast<Decorator*>(this)->template around<T>(call, queue, forward);
    }

    C* _inner;
};

/// @brief The roles that a communicator adds its own one to.
template <class C>
struct InnerRoles {
    using Part = C; ///< the type of a part
};

template <HasPart C>
struct InnerRoles<C> {
    using Part = typename C::Part;
};

template <GroupedCommunicator C>
struct InnerRoles<C> {
    using Part = typename C::Part;
    static constexpr bool sends_float_between = C::sends_float_between;
};

/// @brief The base of `Groups`: passes on the roles of the other communicator, and what reaches all
/// parts.
/// @tparam Derived its `for_parts(call)` calls `call(part)` once for each communicator
/// @tparam IsTwice whether `C` has the role of `Derived`
/// @tparam IsInnermost whether it must be around no other role
template <class Derived, class C, bool IsTwice, bool IsInnermost = false>
class RoleDecorator : public CommunicatorDecorator<Derived, C, typename C::Backend, true>,
                      public InnerRoles<C> {
    using Base = CommunicatorDecorator<Derived, C, typename C::Backend, true>;
    friend Base;

    static_assert(!IsTwice, "zero::Groups: a role is given twice, and the outer one would hide the "
                            "ranks of the inner one; leave one of them out. zero::Experts has the "
                            "role of zero::ModelParallel: {.experts = E, .model = M}.");
    static_assert(IsTwice || !IsInnermost || !HasGroups<C>,
                  "zero::Groups: zero::Hybrid around another role would hide its ranks; write "
                  "zero::Groups<zero::Groups<C, zero::Hybrid>, Role>.");

public:
    using Part = typename InnerRoles<C>::Part;

    RoleDecorator(RoleDecorator&&) = delete;
    RoleDecorator& operator=(RoleDecorator&&) = delete;
    ~RoleDecorator() = default;

    /// @brief See `GroupedCommunicator`, of ranks that are grouped themselves.
    [[nodiscard]] Part& shard() const noexcept
        requires GroupedCommunicator<C>
    {
        return this->inner().shard();
    }

    [[nodiscard]] Part& replicas() const noexcept
        requires GroupedCommunicator<C>
    {
        return this->inner().replicas();
    }

    [[nodiscard]] std::size_t replica() const noexcept
        requires GroupedCommunicator<C>
    {
        return this->inner().replica();
    }

    [[nodiscard]] std::size_t replica_of(std::size_t rank) const noexcept
        requires GroupedCommunicator<C>
    {
        return this->inner().replica_of(rank);
    }

    /// @brief See `SecondaryCommunicator`, of ranks that have this role themselves.
    [[nodiscard]] Part& secondary() const noexcept
        requires SecondaryCommunicator<C>
    {
        return this->inner().secondary();
    }

    /// @brief Returns the other communicator, of the same ranks.
    [[nodiscard]] C& without_role() const noexcept { return this->inner(); }

    /// @brief See `Communicator`. Includes the scratch memory of all parts.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept {
        std::size_t bytes = 0;
        each([&](auto& part) { bytes += scratch_bytes_of(part, largest_bucket_bytes); });
        return bytes;
    }

    /// @brief Releases the ranks that wait in any part.
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        each([&](auto& part) { part.abort(cause, is_provisional); });
    }

    void rethrow_failure()
        requires requires(C& part) { part.rethrow_failure(); }
    {
        each([](auto& part) { part.rethrow_failure(); });
    }

    void synchronise()
        requires requires(C& part) { part.synchronise(); }
    {
        each([](auto& part) { part.synchronise(); });
    }

    void forget_events() noexcept
        requires requires(C& part) { part.forget_events(); }
    {
        each([](auto& part) { part.forget_events(); });
    }

    /// @brief Marks the beginning and the end of a body of `run_rank`, which calls them.
    void begin_run() noexcept
        requires requires(C& part) { part.begin_run(); }
    {
        each([](auto& part) { part.begin_run(); });
    }

    void end_run() noexcept
        requires requires(C& part) { part.end_run(); }
    {
        each([](auto& part) { part.end_run(); });
    }

    /// @brief Returns the timeline of a `Timed` communicator.
    [[nodiscard]] auto* timeline() const noexcept
        requires requires(C const& part) { part.timeline(); }
    {
        return this->inner().timeline();
    }

protected:
    explicit RoleDecorator(C& inner) noexcept : Base(inner) {}

    /// @brief Calls for the other communicator, and for a part unless it plays that role as well.
    template <class P, class Call>
    void for_inner_and(P& part, Call const& call) const {
        call(this->inner());
        if (static_cast<void const*>(&part) != &this->inner()) {
            call(part);
        }
    }

private:
    template <class T, class Forward>
    void around(DecoratedCall const& /*call*/, typename Base::Queue /*queue*/,
                Forward const& forward) {
        forward();
    }

    template <class Call>
    void each(Call const& call) const {
        static_cast<Derived const*>(this)->for_parts(call);
    }
};

} // namespace ZERO_NAMESPACE::detail
