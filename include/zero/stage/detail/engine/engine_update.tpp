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
            if constexpr (detail::codes_weights<Config>) { // a replica holds what was decoded, and
                // an update may leave it so: codes follow from master weights
                if (_parameters.sends_updates()) {
                    _optimizer.of_bucket(bucket,
                                         [&](auto const& store) { store.round_bucket(bucket); });
                }
            }
        }
        _parameters.publish(begin, end);
        end = begin;
    }
}

/// Begins the update of this step, and publishes it if the next step shall not. In a step that is
/// not delayed the caller waits.
template <class Config>
void Engine<Config>::begin_updates() {
    _optimizer.each(
        [&](auto const& store) { store.begin_updates(_control.rows(), _control.decision()); });
    for (std::size_t bucket = _layout.trainable_buckets(); bucket-- > 0;) {
        _optimizer.of_bucket(bucket, [&](auto const& store) { store.begin_update(bucket); });
    }
    _protocol.set_update_pending(true);
    if constexpr (detail::delays_update<Config>) { // `extern template` instantiates it for all
        if (!_warm_up.is_over && _options.offload.warm_up_steps != 0) {
            detail::wait_for_collectives(*_communicator, _queue);
            _warm_up.is_over = _control.settled().step_count > _options.offload.warm_up_steps;
        }
        bool const is_late = _warm_up.is_over || _options.offload.warm_up_steps == 0;
        if (!is_late || _ready_order.is_wanted()) { // a rebuild moves all states
            end_updates();
        }
    }
}

/// Enqueues the publication of an update that was begun.
template <class Config>
void Engine<Config>::finish_updates() {
    publish_updates([&](std::size_t bucket) {
        _optimizer.of_bucket(bucket, [&](auto const& store) { store.finish_update(bucket); });
    });
}

/// Publishes an update that was begun, and waits: until then a failure leaves it pending.
template <class Config>
void Engine<Config>::end_updates() {
    finish_updates();
    detail::wait_for_collectives(*_communicator, _queue);
    _protocol.set_update_pending(false);
}

/// Calls `update` for each bucket, in order of use by the next forward pass, and publishes.
template <class Config>
template <class Update>
void Engine<Config>::publish_updates(Update const& update) {
    if constexpr (detail::codes_weights<Config>) {
        _optimizer.each([](auto& store) { store.forget_writes(); });
    }
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
    settle_pending("settle()");
    _protocol.require_between_steps("settle()");
}

/// The same inside of a collective call, which checks the phase itself.
template <class Config>
void Engine<Config>::settle_pending([[maybe_unused]] char const* call) {
    if constexpr (detail::delays_update<Config>) {
        if (!_protocol.may_settle()) {
            return;
        }
        _protocol.require_nothing_held(call);
        if (_options.current_memory) { // it may have been replaced since the step
            check_current_memory();
        }
        compare_call("settle(), alone or in another call");
        require_healthy();
        try {
            _parameters.wait_for_readers();
            _parameters.drop_prefetched();
            end_updates();
        } catch (...) {
            fail();
        }
        _protocol.end_step();
    }
}

} // namespace ZERO_NAMESPACE
