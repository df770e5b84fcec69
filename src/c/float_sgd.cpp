#include "typed_engine.hpp"

namespace zero_c {

EngineType const float_sgd = engine_type<float, zero::Sgd>;

} // namespace zero_c
