#pragma once

#include "zero_stage.hpp"

/// @file
/// @brief Compiles a composition once for a whole program.
///
/// A composition is a template, so every translation unit that uses it compiles it again. A program
/// with several translation units writes, at global scope,
///
///     using Zero = zero::ZeroStage<2, zero::AdamW>;
///     ZERO_DECLARE_STAGE(Zero); // wherever it is used, preferably right after the alias
///     ZERO_DEFINE_STAGE(Zero);  // in one translation unit
///
/// and only that translation unit compiles the engine; for nvcc it alone holds the kernels. Member
/// templates, such as `for_each_full_parameter` and `step` with a caller-defined update, are still
/// compiled where they are called.
///
/// Compositions that differ only in stage or partitioner share an engine. Define each in a
/// translation unit of its own, which also compiles them in parallel.

/// @brief Declares that another translation unit defines the composition.
#define ZERO_DECLARE_STAGE(...)                                                                    \
    extern template class ::zero::Engine<typename __VA_ARGS__::Composition::EngineConfig>;         \
    extern template class ::zero::detail::AcceptedStage<typename __VA_ARGS__::Composition>

/// @brief Defines a declared composition. Use it in exactly one translation unit; compositions that
/// share an engine need different ones.
#define ZERO_DEFINE_STAGE(...)                                                                     \
    template class ::zero::Engine<typename __VA_ARGS__::Composition::EngineConfig>;                \
    template class ::zero::detail::AcceptedStage<typename __VA_ARGS__::Composition>
