#pragma once

#include "../backend/detail/timed_region.hpp"
#include "../backend/timed_backend.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/timeline.hpp"
#include "collective_tag.hpp"
#include "communicator.hpp"
#include "detail/scratch_bytes_of.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace ZERO_NAMESPACE {

/// @brief A communicator that records its collectives, and everything that an engine on it
/// enqueues, in a `Timeline`. An engine on another communicator contains no code for it.
///
/// The results have the same bits. Construct and destroy it on the thread of its rank, which
/// records from then on; if a thread has several, the last one wins. Other threads that call the
/// engine need a `TimelineScope`.
template <class C>
class Timed {
public:
    using policy_category = CommunicatorCategory;
    using Backend = TimedBackend<typename C::Backend>;
    using Queue = typename Backend::Queue;
    static constexpr bool is_checked = requires { requires C::is_checked; };
    static constexpr bool compares_calls = requires { requires C::compares_calls; };

    /// @param inner the communicator that moves the data; must outlive this object
    /// @param timeline null: nothing is recorded; must outlive this object
    Timed(C& inner, Timeline* timeline) : _inner(&inner), _timeline(timeline), _scope(timeline) {
        if (timeline != nullptr) {
            QueueClock<typename C::Backend>::prepare(*timeline);
        }
    }

    [[nodiscard]] int rank() const noexcept { return _inner->rank(); }
    [[nodiscard]] int size() const noexcept { return _inner->size(); }

    /// @brief Returns the timeline; null if nothing is recorded.
    [[nodiscard]] Timeline* timeline() const noexcept { return _timeline; }

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

    /// @brief See `Communicator`. Records the call.
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        Region const region(queue, TimelinePhase::reduce, tag.what, tag.index);
        note(region, tag, cuts.back() * sizeof(T));
        _inner->reduce_scatter(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T, class A>
        requires detail::AccumulatesReduceScatter<C, T, A>
    void reduce_scatter(T const* send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        Region const region(queue, TimelinePhase::reduce, tag.what, tag.index);
        note(region, tag, cuts.back() * sizeof(T));
        _inner->reduce_scatter(send, sum, cuts, queue, tag, is_added);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        // Replicas are gathered in place; leases are not.
        bool const is_in_place = send == receive + cuts[static_cast<std::size_t>(rank())];
        bool const is_gradient = std::strncmp(tag.what, "gradient", 8) == 0;
        Region const region(queue,
                            is_gradient   ? TimelinePhase::reduce
                            : is_in_place ? TimelinePhase::publish
                                          : TimelinePhase::gather,
                            tag.what, tag.index);
        note(region, tag, cuts.back() * sizeof(T));
        _inner->all_gather(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        Region const region(queue, TimelinePhase::reduce, tag.what, tag.index);
        note(region, tag, cuts.back() * sizeof(T));
        _inner->all_reduce(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        Region const region(queue, TimelinePhase::publish, tag.what, tag.index);
        note(region, tag, elements * sizeof(T));
        _inner->broadcast(buffer, elements, root, queue, tag);
    }

    /// @copydoc reduce_scatter
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        Region const region(queue, TimelinePhase::decide, tag.what); // its index may be a hash
        note(region, tag, elements * sizeof(std::int64_t));
        _inner->all_reduce_integers(values, elements, reduction, queue, tag);
    }

    /// @brief See `Communicator`. Records a span of the phase `decide`.
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {})
        requires detail::ReducesIntegersTogether<C>
    {
        Region const region(queue, TimelinePhase::decide, tag.what); // its index may be a hash
        note(region, tag, (sums + minima) * sizeof(std::int64_t));
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

private:
    using Region = detail::TimedRegion<typename C::Backend>;

    static void note(Region const& region, CollectiveTag const& tag, std::size_t bytes) noexcept {
        if (TimelineSpan* const span = region.span(); span != nullptr) {
            span->is_collective = true;
            span->call_stops_model = !requires { requires C::Backend::is_device; };
            span->bytes = bytes;
            std::strncpy(span->parameter.data(), tag.parameter, span->parameter.size() - 1);
        }
    }

    C* _inner;
    Timeline* _timeline;
    TimelineScope _scope;
};

} // namespace ZERO_NAMESPACE
