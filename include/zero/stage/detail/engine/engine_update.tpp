#pragma once

// The updates of a step and their publication, at once or by the next step; included by engine.hpp.

#include "../../../backend/fence.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../engine.hpp"
#include "../common/engine_config.hpp"

namespace ZERO_NAMESPACE {

/// Calls `update` for each bucket of a group before the group is published.
template <class Config>
template <class Update>
void Engine<Config>::publish_all(Update const& update) {
    for (std::size_t end = _layout.trainable_buckets(); end != 0;) {
        std::size_t const begin = _parameters.first_of_group(end);
        for (std::size_t bucket = end; bucket-- > begin;) {
            update(bucket);
        }
        _parameters.publish(begin, end);
        end = begin;
    }
}

/// Begins the update of this step, and notes whether the next one publishes it.
template <class Config>
void Engine<Config>::begin_updates() {
    _optimizer.each(
        [&](auto const& store) { store.begin_updates(_control.rows(), _control.decision()); });
    for (std::size_t bucket = _layout.trainable_buckets(); bucket-- > 0;) {
        _optimizer.of_bucket(bucket, [&](auto const& store) { store.begin_update(bucket); });
    }
    if (!_pending.is_warm && _options.offload.warm_up_steps != 0) {
        detail::wait_for_collectives(*_communicator, _queue);
        _pending.is_warm = _control.settled().step_count > _options.offload.warm_up_steps;
    }
    bool const is_late = _pending.is_warm || _options.offload.warm_up_steps == 0;
    _pending.is_any = is_late && !_ready_order.is_wanted(); // a rebuild moves all states
}

/// Publishes an update that was begun.
template <class Config>
void Engine<Config>::finish_updates() {
    _pending.is_any = false;
    publish_updates([&](std::size_t bucket) {
        _optimizer.of_bucket(bucket, [&](auto const& store) { store.finish_update(bucket); });
    });
}

/// Calls `update` for each bucket, in order of use by the next forward pass, and publishes.
template <class Config>
template <class Update>
void Engine<Config>::publish_updates(Update const& update) {
    if (_parameters.sends_updates()) {
        publish_all(update);
    } else {
        for (std::size_t bucket = _layout.trainable_buckets(); bucket-- > 0;) {
            update(bucket);
        }
        _parameters.publish_unsent();
    }
}

template <class Config>
void Engine<Config>::settle() {
    settle_pending();
    _protocol.require_between_steps("settle()");
}

/// The same inside of a collective call, which checks the phase itself.
template <class Config>
void Engine<Config>::settle_pending() {
    if constexpr (detail::delays_update<Config>) {
        if (!_protocol.is_update_pending()) {
            return;
        }
        compare_call("settle()");
        require_healthy();
        try {
            _parameters.wait_for_readers();
            _parameters.drop_prefetched();
            finish_updates();
        } catch (...) {
            fail();
        }
        _protocol.end_step();
        leave_callers_memory(Backend::record(_queue));
    }
}

template <class Config>
void Engine<Config>::leave_step() noexcept {
    if constexpr (detail::delays_update<Config>) {
        _protocol.end_step(_pending.is_any);
    } else {
        _protocol.end_step();
    }
}

} // namespace ZERO_NAMESPACE
