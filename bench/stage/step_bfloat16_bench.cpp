// Whole steps with parameters of type bfloat16; see step_benchmarks.hpp.

#include "stage/step_benchmarks.hpp"

#include <zero/core/storage_types.hpp>

namespace {

[[maybe_unused]] bool const is_registered = bench::add_steps<zero::bfloat16>("bfloat16");

} // namespace
