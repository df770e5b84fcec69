#pragma once

#include "../timeline.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

namespace detail {

struct TimeInterval {
    std::int64_t begin;
    std::int64_t end;
};

/// Returns disjoint intervals that cover the same times, in order.
ZERO_COLD_INLINE std::vector<TimeInterval> merged(std::vector<TimeInterval> intervals) {
    std::sort(intervals.begin(), intervals.end(),
              [](TimeInterval a, TimeInterval b) { return a.begin < b.begin; });
    std::vector<TimeInterval> result;
    for (TimeInterval const next : intervals) {
        if (!result.empty() && next.begin <= result.back().end) {
            result.back().end = std::max(result.back().end, next.end);
        } else {
            result.push_back(next);
        }
    }
    return result;
}

ZERO_COLD_INLINE std::int64_t length(std::vector<TimeInterval> const& intervals) {
    std::int64_t total = 0;
    for (TimeInterval const interval : intervals) {
        total += interval.end - interval.begin;
    }
    return total;
}

ZERO_COLD_INLINE Timeline*& timeline_of_thread() noexcept {
    thread_local Timeline* timeline = nullptr;
    return timeline;
}

ZERO_COLD_INLINE TimelineBucket const*& timeline_bucket_of_thread() noexcept {
    thread_local TimelineBucket const* bucket = nullptr;
    return bucket;
}

} // namespace detail

ZERO_COLD_INLINE Timeline::Timeline(int rank, std::size_t capacity, TimelineOptions const& options)
    : _rank(rank), _capacity(capacity), _spans(std::make_unique<TimelineSpan[]>(capacity)),
      _buckets(options.buckets ? std::make_unique<TimelineBucket[]>(capacity) : nullptr) {}

ZERO_COLD_INLINE void Timeline::clear() {
    for (std::size_t position = 0; position < size(); ++position) {
        _spans[position].begin = TimelineSpan::unset;
        _spans[position].end = TimelineSpan::unset;
    }
    _wanted = 0;
    if (_clock != nullptr) {
        _clock->clear();
    }
}

ZERO_INLINE TimelineSpan* Timeline::open(TimelinePhase phase, char const* what, std::size_t index,
                                         void const* queue) noexcept {
    if (!_is_on.load(std::memory_order_relaxed)) {
        return nullptr;
    }
    std::size_t const position = _wanted.fetch_add(1, std::memory_order_relaxed);
    if (position >= _capacity) {
        return nullptr;
    }
    TimelineSpan& span = _spans[position];
    span.phase = phase;
    span.is_collective = span.stops_model = span.call_stops_model = false;
    span.queue = queue;
    span.index = index;
    span.bytes = 0;
    std::strncpy(span.what.data(), what, span.what.size() - 1);
    span.parameter[0] = '\0';
    span.called = span.returned = TimelineSpan::unset;
    if (_buckets != nullptr) {
        TimelineBucket const* const bucket = detail::timeline_bucket_of_thread();
        _buckets[position] = bucket != nullptr ? *bucket : TimelineBucket{};
    }
    return &span;
}

ZERO_INLINE std::size_t Timeline::size() const noexcept {
    return std::min(_wanted.load(std::memory_order_relaxed), _capacity);
}

ZERO_COLD_INLINE void Timeline::resolve() {
    if (_clock != nullptr) {
        _clock->resolve(_spans.get(), size());
    }
}

ZERO_COLD_INLINE TimelineSummary Timeline::summary() {
    resolve();
    TimelineSummary result;
    std::vector<detail::TimeInterval> communication;
    std::vector<detail::TimeInterval> still;
    for (std::size_t position = 0; position < size(); ++position) {
        TimelineSpan const& span = _spans[position];
        std::int64_t const begin = span.begin;
        std::int64_t const end = span.end;
        if (begin == TimelineSpan::unset || end < begin) {
            continue;
        }
        ++result.spans;
        result.seconds[static_cast<std::size_t>(span.phase)] +=
            static_cast<double>(end - begin) * 1e-9;
        if (span.is_collective) {
            communication.push_back({begin, end});
        }
        if (span.stops_model) {
            still.push_back({begin, end});
        }
        if (span.call_stops_model && span.returned >= span.called) {
            still.push_back({span.called, span.returned});
        }
    }
    result.dropped = _wanted - size();
    communication = detail::merged(std::move(communication));
    still = detail::merged(std::move(still));
    std::int64_t const apart = detail::length(communication) + detail::length(still);
    result.communication = static_cast<double>(detail::length(communication)) * 1e-9;
    communication.insert(communication.end(), still.begin(), still.end());
    result.exposed =
        static_cast<double>(apart - detail::length(detail::merged(std::move(communication))))
        * 1e-9;
    return result;
}

ZERO_INLINE Timeline* Timeline::of_thread() noexcept {
    return detail::timeline_of_thread();
}

ZERO_COLD_INLINE Timeline* Timeline::set_of_thread(Timeline* timeline) noexcept {
    return std::exchange(detail::timeline_of_thread(), timeline);
}

ZERO_INLINE TimelineBucket const*
Timeline::set_bucket_of_thread(TimelineBucket const* bucket) noexcept {
    return std::exchange(detail::timeline_bucket_of_thread(), bucket);
}

ZERO_INLINE std::int64_t Timeline::now() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

} // namespace ZERO_NAMESPACE
