#include "typed_engine.hpp"

namespace zero_c {

EngineType const bfloat16_sgd = engine_type<zero::bfloat16, zero::Sgd>;

} // namespace zero_c
