#pragma once

#include "../../../backend/fence.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Remembers which queue wrote gradients last, and makes other queues wait for it.
///
/// Used by the GradientScheduler. A bucket's gradients are its lease and the caller-owned memory of
/// its parameters.
template <class Backend>
class GradientWriters {
public:
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    /// @param communication the queue that reduces gradients
    /// @param buckets number of trainable buckets; others have no writer
    [[gnu::cold]] GradientWriters(Queue communication, std::size_t buckets)
        : _communication(communication), _of_bucket(buckets) {
        _of_micro_step.reserve(usual_writers);
    }

    void begin_micro_step() noexcept { _of_micro_step.clear(); }

    /// @brief Orders commands on `writer` after all noted writes to the bucket.
    void follow(std::size_t bucket, Queue writer) {
        if (_of_bucket[bucket].queue != writer) {
            Backend::wait(writer, _of_bucket[bucket].event, Fence::gradients_written);
        }
    }

    /// @brief The same for several buckets.
    void follow(std::span<std::size_t const> buckets, Queue writer) {
        for (std::size_t const bucket : buckets) {
            if (bucket < _of_bucket.size()) {
                follow(bucket, writer);
            }
        }
    }

    /// @brief Notes that commands on `writer` up to now wrote to these buckets. They must have
    /// followed the writes noted before. @return the point after these commands
    Event note(std::span<std::size_t const> buckets, Queue writer) {
        note_queue(writer);
        Event event = Backend::record(writer);
        for (std::size_t const bucket : buckets) {
            if (bucket < _of_bucket.size()) {
                _of_bucket[bucket] = {writer, event};
            }
        }
        return event;
    }

    /// @brief Notes the last write to one bucket.
    void note(std::size_t bucket, Queue writer, Event const& event) {
        _of_bucket[bucket] = {writer, event};
    }

    /// @brief Makes the communication queue wait for every queue of the micro-step and for
    /// `writer`, because a caller need not report every write.
    void join_all(Queue writer, Fence fence) {
        note_queue(writer);
        for (Write& last : _of_micro_step) {
            last.event = Backend::record(last.queue);
            Backend::wait(_communication, last.event, fence);
        }
    }

    /// @brief Makes every queue of the micro-step wait for an event, after which caller-owned
    /// gradients may be written again.
    void hold_all(Event const& event) const {
        for (Write const& last : _of_micro_step) {
            Backend::wait(last.queue, event, Fence::gradient_lease_reuse);
        }
    }

    /// @brief Drops events. Call it between steps, once all earlier commands are ordered before all
    /// later ones.
    void forget_events() noexcept {
        for (Write& write : _of_bucket) {
            write = {};
        }
        _of_micro_step.clear();
    }

    /// @brief Rethrows the exception that a command of the last micro-step threw on a caller's
    /// queue, if it is already known.
    void rethrow_failure() const {
        if constexpr (requires(Event const& event) { Backend::rethrow_failure(event); }) {
            for (Write const& last : _of_micro_step) {
                Backend::rethrow_failure(last.event);
            }
        }
    }

private:
    struct Write {
        Queue queue{};
        Event event{};
    };
    static constexpr std::size_t usual_writers = 4; ///< more queues allocate inside a step

    void note_queue(Queue writer) {
        for (Write const& last : _of_micro_step) {
            if (last.queue == writer) {
                return;
            }
        }
        _of_micro_step.push_back({writer, {}});
    }

    Queue _communication;
    List<Write> _of_bucket;     ///< per trainable bucket: its last write
    List<Write> _of_micro_step; ///< each queue once; the event is set by `join_all`
};

} // namespace ZERO_NAMESPACE::detail
