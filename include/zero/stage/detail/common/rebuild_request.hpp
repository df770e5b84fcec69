#pragma once

#include "../../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE {

template <class Config>
class Engine;

namespace detail {

/// @brief The argument of the option `rebuild_buckets`. Only an engine makes one.
template <class Config>
class RebuildRequest {
    friend class Engine<Config>;
    explicit RebuildRequest(Engine<Config>& engine) noexcept : _engine(&engine) {}
    Engine<Config>* _engine;
};

} // namespace detail
} // namespace ZERO_NAMESPACE
