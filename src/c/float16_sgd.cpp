#include "typed_engine.hpp"

namespace zero_c {

EngineType const float16_sgd = engine_type<zero::float16, zero::Sgd>;

} // namespace zero_c
