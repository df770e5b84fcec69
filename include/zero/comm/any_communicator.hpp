#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "../ops/tree_sum.hpp"
#include "communicator.hpp"
#include "detail/optional_operations.hpp"
#include "grouped_communicator.hpp"
#include "traffic_count.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <variant>

namespace ZERO_NAMESPACE {

/// @brief One of several communicators with the same backend, chosen at run time, so that a program
/// for threads and for processes compiles its engine once. Refers to the communicator, which must
/// outlive it; owns nothing. A call costs one branch more.
///
/// It has an optional operation if every choice has it, and reads pieces if the chosen one does;
/// properties that a choice lacks have their defaults.
template <class First, class... Others>
class AnyCommunicator {
public:
    using policy_category = CommunicatorCategory;
    using Backend = typename First::Backend;
    using Queue = typename Backend::Queue;
    using Inner = std::variant<First*, Others*...>; ///< the address of one of them

    /// @brief Whether all of these communicators compare calls between ranks.
    static constexpr bool is_checked = requires {
        requires First::is_checked;
        requires(Others::is_checked && ...);
    };

    /// @brief Whether all of these communicators tell ranks whose calls differ.
    static constexpr bool compares_calls =
        detail::compares_calls<First> && (detail::compares_calls<Others> && ...);

private:
    static_assert(!detail::HasGroups<First> && (!detail::HasGroups<Others> && ...),
                  "zero: an AnyCommunicator hides the parts of zero::Groups, so an engine on it "
                  "would run flat; give it the parts, or AnyCommunicators to zero::Groups.");

    Inner _inner;

    template <class Body>
    decltype(auto) visit(Body const& body) const {
        return std::visit([&](auto* inner) -> decltype(auto) { return body(*inner); }, _inner);
    }

public:
    /// @param inner the address of the communicator
    explicit AnyCommunicator(Inner inner) noexcept : _inner(inner) {}

    /// @brief See `Communicator`, also for the operations below.
    [[nodiscard]] int rank() const {
        return visit([](auto& inner) { return inner.rank(); });
    }
    [[nodiscard]] int size() const {
        return visit([](auto& inner) { return inner.size(); });
    }
    /// @brief 0 if the chosen one has none.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        return visit([](auto& inner) { return detail::options_hash_of(inner); });
    }
    /// @brief 0 if the chosen one has no scratch memory.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept {
        return visit(
            [&](auto& inner) { return detail::scratch_bytes_of(inner, largest_bucket_bytes); });
    }
    /// @brief The backend's memory if the peers of the chosen one read none in place.
    [[nodiscard]] MemoryResource& shared_memory() const {
        return visit(
            [](auto& inner) -> MemoryResource& { return detail::memory_for(inner, nullptr); });
    }
    /// @brief False if the chosen one does not say so.
    [[nodiscard]] bool shares_process() const noexcept {
        return visit([](auto& inner) { return detail::shares_process(inner); });
    }
    /// @brief 0 if the chosen one does not say so.
    [[nodiscard]] std::size_t ranks_in_process() const noexcept {
        return visit([](auto& inner) { return detail::ranks_in_process(inner); });
    }
    /// @brief The rank if the chosen one has no position.
    [[nodiscard]] int position() const noexcept {
        return visit([](auto& inner) { return static_cast<int>(detail::position_of(inner)); });
    }
    /// @brief 0 if the chosen one does not say so.
    [[nodiscard]] std::size_t inadmissible_ranks(ops::MicroBatchTree const& tree) const noexcept {
        return visit([&](auto& inner) { return detail::inadmissible_ranks_of(inner, tree); });
    }
    /// @brief Empty if the chosen one does not say so.
    [[nodiscard]] std::string_view reason_against_tree() const noexcept {
        return visit([](auto& inner) { return detail::reason_against_tree(inner); });
    }

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.reduce_scatter(send, receive, cuts, queue, tag); });
    }
    /// @brief Adds to sums, if every choice does.
    template <class T, class A>
        requires(detail::AccumulatesReduceScatter<First, T, A>
                 && (detail::AccumulatesReduceScatter<Others, T, A> && ...))
    void reduce_scatter(T const* send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        visit([&](auto& inner) { inner.reduce_scatter(send, sum, cuts, queue, tag, is_added); });
    }
    /// @brief Reads pieces where they lie. @throws std::logic_error unless `reads_pieces<T, A>()`
    template <class T, class A>
        requires(detail::ReduceScattersPieces<First, T, A>
                 || (detail::ReduceScattersPieces<Others, T, A> || ...))
    void reduce_scatter(SentPieces<T> send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        visit([&]<class Chosen>(Chosen& inner) {
            if constexpr (detail::ReduceScattersPieces<Chosen, T, A>) {
                inner.reduce_scatter(send, sum, cuts, queue, tag, is_added);
            } else {
                throw std::logic_error("this communicator reads no pieces");
            }
        });
    }
    /// @brief Whether the chosen one reads pieces.
    template <class T, class A>
    [[nodiscard]] bool reads_pieces() const noexcept {
        return visit([](auto& inner) { return detail::reads_pieces<T, A>(inner); });
    }
    /// @brief Adds in a tree, if every choice does.
    template <class T, class A>
        requires(detail::ReduceScattersInTree<First, T, A>
                 && (detail::ReduceScattersInTree<Others, T, A> && ...))
    void reduce_scatter(T const* send, ops::TreeSum<A> const& sum,
                        std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.reduce_scatter(send, sum, cuts, queue, tag); });
    }
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.all_gather(send, receive, cuts, queue, tag); });
    }
    /// @brief Exchanges, if every choice does.
    template <class T>
        requires(detail::HasExchange<First> && (detail::HasExchange<Others> && ...))
    void exchange(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                  CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.exchange(send, receive, cuts, queue, tag); });
    }
    /// @brief Makes one group of gathers, if every choice does.
    template <class Body>
        requires(detail::GroupsGathers<First> && (detail::GroupsGathers<Others> && ...))
    void grouped(Queue queue, Body const& body) {
        visit([&](auto& inner) { inner.grouped(queue, body); });
    }
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.all_reduce(send, receive, cuts, queue, tag); });
    }
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.broadcast(buffer, elements, root, queue, tag); });
    }
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        visit([&](auto& inner) {
            inner.all_reduce_integers(values, elements, reduction, queue, tag);
        });
    }
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {})
        requires(detail::ReducesIntegersTogether<First>
                 && (detail::ReducesIntegersTogether<Others> && ...))
    {
        visit([&](auto& inner) { inner.all_reduce_integers(values, sums, minima, queue, tag); });
    }
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        visit([&](auto& inner) { inner.abort(cause, is_provisional); });
    }
    void rethrow_failure() {
        visit([](auto& inner) { detail::rethrow_failure_of(inner); });
    }
    /// @brief Waits for collectives, or looks for their failures.
    void synchronise() {
        visit([](auto& inner) { detail::synchronise_collectives(inner); });
    }
    /// @brief Nothing if the chosen one keeps none.
    void forget_events() noexcept {
        visit([](auto& inner) {
            if constexpr (requires { inner.forget_events(); }) {
                inner.forget_events();
            }
        });
    }

    /// @brief Calls `body(part)` with the communicator of the ranks that give the same `color`, in
    /// the order of `key`. Collective. @throws std::logic_error if the chosen one has no `split`
    template <class Body>
    void with_part(int color, int key, Body const& body) const {
        visit([&](auto& inner) {
            if constexpr (requires { inner.split(color, key); }) {
                auto part = inner.split(color, key);
                AnyCommunicator any(&part);
                body(any);
            } else {
                throw std::logic_error("this communicator has no parts");
            }
        });
    }

    /// @brief Returns the traffic of this rank, if its communicator counts it.
    [[nodiscard]] TrafficCount traffic() const {
        return visit([](auto& inner) {
            if constexpr (requires { inner.traffic(); }) {
                return TrafficCount(inner.traffic());
            } else {
                return TrafficCount{};
            }
        });
    }
    /// @brief Sets that traffic to zero.
    void reset_traffic() {
        visit([](auto& inner) {
            if constexpr (requires { inner.reset_traffic(); }) {
                inner.reset_traffic();
            }
        });
    }
};

} // namespace ZERO_NAMESPACE
