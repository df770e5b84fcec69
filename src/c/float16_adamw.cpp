#include "typed_engine.hpp"

namespace zero_c {

EngineType const float16_adamw = engine_type<zero::float16, zero::AdamW>;

} // namespace zero_c
