#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "collective_tag.hpp"
#include "communicator.hpp"
#include "detail/scratch_bytes_of.hpp"
#include "traffic_count.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ZERO_NAMESPACE {

/// @brief A communicator that counts the calls of another communicator and the payload of each
/// call, as the caller passed it.
///
/// The payload of a reduce-scatter and an all-reduce is the data sent; the payload of an all-gather
/// is the data received.
template <class C>
class Recording {
public:
    using policy_category = CommunicatorCategory;
    using Backend = typename C::Backend;
    using Queue = typename Backend::Queue;
    static constexpr bool is_checked = requires { requires C::is_checked; };
    static constexpr bool compares_calls = requires { requires C::compares_calls; };

    /// @param inner the communicator that moves the data; must outlive this object
    explicit Recording(C& inner) noexcept : _inner(&inner) {}

    [[nodiscard]] int rank() const noexcept { return _inner->rank(); }
    [[nodiscard]] int size() const noexcept { return _inner->size(); }

    /// @brief See `Communicator`.
    [[nodiscard]] std::uint64_t options_hash() const noexcept
        requires requires(C const& inner) { inner.options_hash(); }
    {
        return _inner->options_hash();
    }

    /// @brief See `Communicator`.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept {
        return detail::scratch_bytes_of(*_inner, largest_bucket_bytes);
    }

    /// @brief See `Communicator`. Counts the call.
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        _recorded.add(CollectiveKind::reduce_scatter, cuts.back(), sizeof(T));
        _inner->reduce_scatter(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        _recorded.add(CollectiveKind::all_gather, cuts.back(), sizeof(T));
        _inner->all_gather(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        _recorded.add(CollectiveKind::all_reduce, cuts.back(), sizeof(T));
        _inner->all_reduce(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        _recorded.add(CollectiveKind::broadcast, elements, sizeof(T));
        _inner->broadcast(buffer, elements, root, queue, tag);
    }

    /// @copydoc reduce_scatter
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        _recorded.add(CollectiveKind::integers, elements, sizeof(std::int64_t));
        _inner->all_reduce_integers(values, elements, reduction, queue, tag);
    }

    /// @brief See `Communicator`. Counts the call.
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {})
        requires detail::ReducesIntegersTogether<C>
    {
        _recorded.add(CollectiveKind::integers, sums + minima, sizeof(std::int64_t));
        _inner->all_reduce_integers(values, sums, minima, queue, tag);
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _inner->abort(cause, is_provisional);
    }

    void rethrow_failure()
        requires requires(C& inner) { inner.rethrow_failure(); }
    {
        _inner->rethrow_failure();
    }

    /// @brief See `Communicator`.
    void synchronise()
        requires requires(C& inner) { inner.synchronise(); }
    {
        _inner->synchronise();
    }

    /// @brief See `Communicator`.
    void forget_events() noexcept
        requires requires(C& inner) { inner.forget_events(); }
    {
        _inner->forget_events();
    }

    /// @brief Returns the counts since construction or `reset_recorded`.
    [[nodiscard]] TrafficCount const& recorded() const noexcept { return _recorded; }

    /// @brief Resets the counts.
    void reset_recorded() noexcept { _recorded = {}; }

private:
    C* _inner;
    TrafficCount _recorded;
};

} // namespace ZERO_NAMESPACE
