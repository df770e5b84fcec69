#include "typed_engine.hpp"

namespace zero_c {

EngineType const bfloat16_adamw = engine_type<zero::bfloat16, zero::AdamW>;

} // namespace zero_c
