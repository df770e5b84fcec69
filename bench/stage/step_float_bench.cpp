// Whole steps with parameters of type float; see step_benchmarks.hpp.

#include "stage/step_benchmarks.hpp"

namespace {

[[maybe_unused]] bool const is_registered = bench::add_steps<float>("float");

} // namespace
