#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/timeline.hpp"
#include "../core/timeline_span.hpp"
#include "../layout/flat_layout.hpp"
#include "backend.hpp"
#include "detail/timed_region.hpp"
#include "fence.hpp"
#include "slices.hpp"
#include "update_decision.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace ZERO_NAMESPACE::detail {

/// @brief Appends the name of a unit, or "unit 3", cut to the room that is left.
/// @return the length of the text
inline std::size_t append_unit(TimelineBucket& to, std::size_t length, char const* before,
                               FlatLayout const& layout, std::size_t unit) noexcept {
    std::size_t const room = to.units.size() - length;
    char const* const name = layout.unit_name(unit);
    int const written =
        name != nullptr ? std::snprintf(to.units.data() + length, room, "%s%s", before, name)
                        : std::snprintf(to.units.data() + length, room, "%sunit %zu", before, unit);
    return smaller(length + static_cast<std::size_t>(written), to.units.size() - 1);
}

/// @brief Returns the number and the units of a bucket, without an allocation. O(pieces).
[[nodiscard]] inline TimelineBucket timeline_bucket_of(FlatLayout const& layout,
                                                       std::size_t bucket) noexcept {
    TimelineBucket result;
    result.number = bucket;
    std::size_t first = layout.units();
    std::size_t last = 0;
    for (Piece const& piece : layout.pieces(bucket)) {
        for (std::size_t const unit : layout.parameter(piece.parameter).units) {
            first = smaller(first, unit);
            last = larger(last, unit);
        }
    }
    if (first < layout.units()) {
        std::size_t const length = append_unit(result, 0, "", layout, first);
        if (last != first) {
            (void)append_unit(result, length, " to ", layout, last);
        }
    }
    return result;
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A backend that records each operation of the engine in the timeline of the calling
/// thread (`Timeline::of_thread`), and passes it on. The results have the same bits.
///
/// Engines use it as the backend of `Timed`. Each recorded operation enqueues two more commands, so
/// a `host::ThreadedQueue` that throws when it is full needs three times the capacity.
template <class B>
struct TimedBackend : B {
    using Queue = typename B::Queue; ///< queue of `B`
    using Event = typename B::Event; ///< event of `B`

    /// @brief Records a span of the caller: the commands that are enqueued on `queue` while it
    /// lives. Neither copyable nor movable.
    class Work {
    public:
        /// @param what copied; at most 39 characters are kept
        /// @param index shown after `what`
        Work(Queue queue, char const* what, std::size_t index)
            : _region(queue, TimelinePhase::work, what, index) {}

    private:
        detail::TimedRegion<B> _region;
    };

    /// @brief While it lives, spans that the calling thread opens keep the bucket, if the thread's
    /// timeline has `TimelineOptions::buckets`. The engine makes it. Neither copyable nor movable.
    class BucketScope {
    public:
        /// @brief Sets the bucket of the spans that follow.
        BucketScope(FlatLayout const& layout, std::size_t bucket) noexcept {
            Timeline const* const timeline = Timeline::of_thread();
            _is_set = timeline != nullptr && timeline->has_buckets();
            if (_is_set) {
                _bucket = detail::timeline_bucket_of(layout, bucket);
                _previous = Timeline::set_bucket_of_thread(&_bucket);
            }
        }
        BucketScope(BucketScope const&) = delete;
        BucketScope& operator=(BucketScope const&) = delete;
        ~BucketScope() {
            if (_is_set) {
                Timeline::set_bucket_of_thread(_previous);
            }
        }

    private:
        TimelineBucket _bucket;
        TimelineBucket const* _previous = nullptr;
        bool _is_set;
    };

    /// @brief Records a wait. On the host, a wait for an event that is already complete is left
    /// out.
    static void wait(Queue queue, Event const& event, Fence fence) {
        if constexpr (is_on_host && requires { event.is_complete(); }) {
            if (event.is_complete()) {
                B::wait(queue, event, fence);
                return;
            }
        }
        Region const region(queue, TimelinePhase::wait, name_of(fence));
        if (region.span() != nullptr) {
            region.span()->stops_model =
                fence == Fence::weights_published || fence == Fence::weights_gathered
                || fence == Fence::gradient_lease_reuse || fence == Fence::loss_scale_captured;
        }
        B::wait(queue, event, fence);
    }

    /// @brief Records the wait of the calling thread.
    static void synchronise(Event const& event) {
        Timeline* const timeline = Timeline::of_thread();
        TimelineSpan* const span =
            timeline != nullptr
                ? timeline->open(TimelinePhase::wait, "host waits", Region::no_index, nullptr)
                : nullptr;
        if (span == nullptr) {
            B::synchronise(event);
            return;
        }
        span->stops_model = is_on_host;
        span->begin = Timeline::now();
        B::synchronise(event);
        span->end = Timeline::now();
    }

    /// @brief Records a command of the phase `decide`.
    template <class F>
    static void run(Queue queue, F const& functor) {
        Region const region(queue, TimelinePhase::decide, "command");
        B::run(queue, functor);
    }

    /// @brief Records a span of the phase `copy`.
    template <class T>
    static void fill(Queue queue, T* out, std::size_t elements, T value) {
        Region const region(queue, TimelinePhase::copy, "fill");
        B::fill(queue, out, elements, value);
    }

    /// @brief Records a span of the phase `copy`.
    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes) {
        Region const region(queue, TimelinePhase::copy, "copy");
        B::copy_bytes(queue, out, in, bytes);
    }

    /// @brief Records a span of the phase `reduce`.
    template <class To, class From>
    static void convert(Queue queue, To* out, From const* in, std::size_t elements, float factor) {
        Region const region(queue, TimelinePhase::reduce, "convert");
        B::convert(queue, out, in, elements, factor);
    }

    /// @brief Records a span of the phase `reduce`.
    template <class To, class From>
    static void accumulate(Queue queue, To* sum, From const* in, std::size_t elements) {
        Region const region(queue, TimelinePhase::reduce, "accumulate");
        B::accumulate(queue, sum, in, elements);
    }

    /// @brief Records a span of the phase `inspect`.
    template <class Slices, class Result>
    static void inspect(Queue queue, Slices const& slices, Result* result) {
        Region const region(queue, TimelinePhase::inspect, "inspect");
        B::inspect(queue, slices, result);
    }

    /// @brief Records a span of the phase `inspect`.
    template <class Slices, class Kind, class Norm>
    static void add_to_norms(Queue queue, Slices const& slices, Kind kind, Norm* norms) {
        Region const region(queue, TimelinePhase::inspect, "norms");
        B::add_to_norms(queue, slices, kind, norms);
    }

    /// @brief Records a span of the phase `inspect`.
    template <class Slices>
    static void count_zeros(Queue queue, Slices const& slices, std::int64_t* count) {
        Region const region(queue, TimelinePhase::inspect, "zeros");
        B::count_zeros(queue, slices, count);
    }

    /// @brief Records a span of the phase `update`.
    template <class Optimizer, class Slices, class Group>
    static void update(Queue queue, Slices const& slices, Group const* groups,
                       UpdateDecision const* decision) {
        Region const region(queue, TimelinePhase::update, "update");
        B::template update<Optimizer>(queue, slices, groups, decision);
    }

    /// @brief Records a span of the phase `update`: the host runs nothing else for an engine.
    static void run_on_host(Queue queue, void (*function)(void*), void* argument) {
        Region const region(queue, TimelinePhase::update, "update on the host");
        B::run_on_host(queue, function, argument);
    }

    /// @brief Records a span of the phase `copy`.
    template <class Slices, class InBucket>
    static void copy_from_bucket(Queue queue, Slices const& slices, InBucket const* bucket) {
        Region const region(queue, TimelinePhase::copy, "copy from bucket");
        B::copy_from_bucket(queue, slices, bucket);
    }

    /// @brief Records a span of the phase `copy`.
    template <class Slices, class InBucket>
    static void copy_to_bucket(Queue queue, Slices const& slices, InBucket* bucket) {
        Region const region(queue, TimelinePhase::copy, "copy to bucket");
        B::copy_to_bucket(queue, slices, bucket);
    }

    /// @brief Records a span of the phase `copy`.
    template <class C, class Slices>
    static void encode(Queue queue, Slices const& slices, std::uint8_t* codes)
        requires requires { B::template encode<C>(queue, slices, codes); }
    {
        Region const region(queue, TimelinePhase::copy, "encode");
        B::template encode<C>(queue, slices, codes);
    }

    /// @brief Records a span of the phase `copy`.
    template <class C, class Slices, class T>
    static void decode(Queue queue, Slices const& slices, std::uint8_t const* codes, T* bucket)
        requires requires { B::template decode<C>(queue, slices, codes, bucket); }
    {
        Region const region(queue, TimelinePhase::copy, "decode");
        B::template decode<C>(queue, slices, codes, bucket);
    }

    /// @brief Records a span of the phase `copy`.
    template <class C, class Slices, class T>
    static void encode(Queue queue, Slices const& slices, T const* bucket, std::uint8_t* codes)
        requires requires { B::template encode<C>(queue, slices, bucket, codes); }
    {
        Region const region(queue, TimelinePhase::copy, "encode gradients");
        B::template encode<C>(queue, slices, bucket, codes);
    }

    /// @brief Records a span of the phase `copy`.
    template <class C, class S, class Slices, class T, class E>
    static void encode_with_feedback(Queue queue, Slices const& slices, T const* bucket,
                                     std::uint8_t* codes, CodedErrors<E> const& errors)
        requires requires {
            B::template encode_with_feedback<C, S>(queue, slices, bucket, codes, errors);
        }
    {
        Region const region(queue, TimelinePhase::copy, "encode gradients");
        B::template encode_with_feedback<C, S>(queue, slices, bucket, codes, errors);
    }

    /// @brief Records a span of the phase `copy`.
    template <class C, class Slices, class A>
    static void decode_sum(Queue queue, Slices const& slices, std::uint8_t const* codes,
                           CodedPieces pieces, A* sums, bool is_added)
        requires requires { B::template decode_sum<C>(queue, slices, codes, pieces, sums, true); }
    {
        Region const region(queue, TimelinePhase::copy, "decode and add");
        B::template decode_sum<C>(queue, slices, codes, pieces, sums, is_added);
    }

private:
    using Region = detail::TimedRegion<B>;
    static constexpr bool is_on_host = !requires { requires B::is_device; };
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Records a span of the phase `copy`, if the backend records: the commands that are
/// enqueued on the queue of a tier while it lives.
template <class Backend>
struct TransferSpan {
    TransferSpan(typename Backend::Queue /*queue*/, char const* /*what*/, std::size_t /*chunk*/) {}
};

template <class B>
struct TransferSpan<TimedBackend<B>> {
    TransferSpan(typename B::Queue queue, char const* what, std::size_t chunk)
        : region(queue, TimelinePhase::copy, what, chunk) {}
    TimedRegion<B> region;
};

} // namespace ZERO_NAMESPACE::detail
