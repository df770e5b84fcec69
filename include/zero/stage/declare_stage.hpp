#pragma once

#include "zero_stage.hpp"

/// @file
/// @brief Compiles a composition once for a whole program.
///
/// A composition is a template, so every unit that uses it compiles it again. A program with
/// several units writes, at global scope,
///
///     using Zero = zero::ZeroStage<2, zero::AdamW>;
///     ZERO_DECLARE_STAGE(Zero); // in each unit that uses it, preferably right after the alias
///     ZERO_DEFINE_STAGE(Zero);  // in one unit
///
/// and only that one unit compiles the engine; for nvcc it alone holds the kernels. Member
/// templates, such as `for_each_full_parameter` and `step` with a caller-defined update, are still
/// compiled where they are called.
///
/// Compositions that differ only in stage or partitioner share an engine. Define each in a unit of
/// its own, which also compiles them in parallel.

/// @brief Declares that another unit defines the stage.
#define ZERO_DECLARE_STAGE(...)                                                                    \
    extern template class ::zero::Engine<typename __VA_ARGS__::Composition::EngineConfig>;         \
    extern template class ::zero::detail::AcceptedStage<typename __VA_ARGS__::Composition>

/// @brief Defines the stage; at most once per unit for each engine.
#define ZERO_DEFINE_STAGE(...)                                                                     \
    template class ::zero::Engine<typename __VA_ARGS__::Composition::EngineConfig>;                \
    template class ::zero::detail::AcceptedStage<typename __VA_ARGS__::Composition>
