#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE {

template <class Config>
class Engine;

namespace detail {

/// @brief The configuration of an engine's type.
template <class EngineType>
struct ConfigOf;
template <class Config>
struct ConfigOf<Engine<Config>> {
    using type = Config;
};

/// @brief The configuration of a stage, or of an engine.
template <class Stage>
using config_of_t = typename ConfigOf<typename Stage::EngineType>::type;

} // namespace detail

} // namespace ZERO_NAMESPACE
