// Whole steps with parameters of type bfloat16, as they are and in codes; see step_benchmarks.hpp.

#include "stage/step_benchmarks.hpp"

#include <zero/core/storage_types.hpp>
#include <zero/stage/wire.hpp>

namespace {

using namespace zero;

[[maybe_unused]] bool const is_registered = [] {
    bench::add_steps<bfloat16>("bfloat16");
    bench::add_coded<bfloat16, Wire<Int8Blocks>>("bfloat16", "int8_weights");
    using Both = Wire<Int8Blocks, Int4Blocks>;
    bench::add_coded<bfloat16, Both>("bfloat16", "int8_weights_int4_gradients");
    using Fed = Wire<Int8Blocks, Int4Blocks, ErrorFeedback<float>>;
    bench::add_coded<bfloat16, Fed>("bfloat16", "int8_weights_int4_gradients_feedback");
    return true;
}();

} // namespace
