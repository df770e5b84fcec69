#pragma once

#include <zero/comm/communicator.hpp>
#include <zero/comm/detail/optional_operations.hpp>
#include <zero/comm/traffic_count.hpp>
#include <zero/core/policy_category.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/ops/tree_sum.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <variant>

namespace gpt {

/// @brief One of several communicators with the same backend. The choice is made when the program
/// starts, so each stage is compiled once. Refers to the communicator; owns nothing.
template <class First, class... Others>
class AnyCommunicator {
public:
    using policy_category = zero::CommunicatorCategory;
    using Backend = typename First::Backend;
    using Queue = typename Backend::Queue;
    using Loopback = First; ///< the communicator between threads
    using Inner = std::variant<First*, Others*...>;

    /// @brief Whether all of these communicators compare calls between ranks.
    static constexpr bool is_checked = requires {
        requires First::is_checked;
        requires(Others::is_checked && ...);
    };

    /// @brief Whether all of these communicators tell ranks whose calls differ.
    static constexpr bool compares_calls =
        zero::detail::compares_calls<First> && (zero::detail::compares_calls<Others> && ...);

private:
    Inner _inner;

    template <class Body>
    auto visit(Body const& body) const {
        return std::visit([&](auto* inner) { return body(*inner); }, _inner);
    }

public:
    explicit AnyCommunicator(Inner inner) : _inner(inner) {}

    [[nodiscard]] int rank() const {
        return visit([](auto& inner) { return inner.rank(); });
    }
    [[nodiscard]] int size() const {
        return visit([](auto& inner) { return inner.size(); });
    }
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        return visit([](auto& inner) -> std::uint64_t {
            if constexpr (requires { inner.options_hash(); }) {
                return inner.options_hash();
            } else {
                return 0;
            }
        });
    }
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept {
        return visit([&](auto& inner) {
            return zero::detail::scratch_bytes_of(inner, largest_bucket_bytes);
        });
    }
    [[nodiscard]] int position() const noexcept {
        return visit(
            [](auto& inner) { return static_cast<int>(zero::detail::position_of(inner)); });
    }
    [[nodiscard]] std::size_t
    inadmissible_ranks(zero::ops::MicroBatchTree const& tree) const noexcept {
        return visit([&](auto& inner) { return zero::detail::inadmissible_ranks_of(inner, tree); });
    }
    [[nodiscard]] std::string_view reason_against_tree() const noexcept {
        return visit([](auto& inner) { return zero::detail::reason_against_tree(inner); });
    }

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.reduce_scatter(send, receive, cuts, queue, tag); });
    }
    template <class T, class A>
        requires(zero::detail::AccumulatesReduceScatter<First, T, A>
                 && (zero::detail::AccumulatesReduceScatter<Others, T, A> && ...))
    void reduce_scatter(T const* send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        zero::CollectiveTag tag, bool is_added) {
        visit([&](auto& inner) { inner.reduce_scatter(send, sum, cuts, queue, tag, is_added); });
    }
    template <class T, class A>
        requires(zero::detail::ReduceScattersInTree<First, T, A>
                 && (zero::detail::ReduceScattersInTree<Others, T, A> && ...))
    void reduce_scatter(T const* send, zero::ops::TreeSum<A> const& sum,
                        std::span<std::size_t const> cuts, Queue queue,
                        zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.reduce_scatter(send, sum, cuts, queue, tag); });
    }
    template <class T>
    void exchange(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                  zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) {
            if constexpr (requires { inner.exchange(send, receive, cuts, queue, tag); }) {
                inner.exchange(send, receive, cuts, queue, tag);
            } else { // train_gpt has refused it
                throw std::logic_error("these ranks cannot exchange");
            }
        });
    }
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.all_gather(send, receive, cuts, queue, tag); });
    }
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.all_reduce(send, receive, cuts, queue, tag); });
    }
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue,
                   zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.broadcast(buffer, elements, root, queue, tag); });
    }
    void all_reduce_integers(std::int64_t* values, std::size_t elements,
                             zero::IntegerReduction reduction, Queue queue,
                             zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) {
            inner.all_reduce_integers(values, elements, reduction, queue, tag);
        });
    }
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, zero::CollectiveTag tag = {})
        requires(zero::detail::ReducesIntegersTogether<First>
                 && (zero::detail::ReducesIntegersTogether<Others> && ...))
    {
        visit([&](auto& inner) { inner.all_reduce_integers(values, sums, minima, queue, tag); });
    }
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        visit([&](auto& inner) { inner.abort(cause, is_provisional); });
    }
    void rethrow_failure() {
        visit([](auto& inner) { zero::detail::rethrow_failure_of(inner); });
    }
    void synchronise() {
        visit([](auto& inner) { zero::detail::synchronise_collectives(inner); });
    }
    void forget_events() noexcept {
        visit([](auto& inner) {
            if constexpr (requires { inner.forget_events(); }) {
                inner.forget_events();
            }
        });
    }

    /// @brief Calls `body(part)` with the communicator of the ranks that give the same `color`.
    /// Collective.
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
    [[nodiscard]] zero::TrafficCount traffic() const {
        return visit([](auto& inner) {
            if constexpr (requires { inner.traffic(); }) {
                return zero::TrafficCount(inner.traffic());
            } else {
                return zero::TrafficCount{};
            }
        });
    }
    void reset_traffic() {
        visit([](auto& inner) {
            if constexpr (requires { inner.reset_traffic(); }) {
                inner.reset_traffic();
            }
        });
    }
};

} // namespace gpt
