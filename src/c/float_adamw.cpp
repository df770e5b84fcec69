#include "typed_engine.hpp"

namespace zero_c {

EngineType const float_adamw = engine_type<float, zero::AdamW>;

} // namespace zero_c
