#pragma once

namespace zero::test {

/// @brief A type made of parts. A concept's archetype is a list of parts; leaving one out, or
/// replacing it, gives a model with one defect.
template <class... Parts>
struct Archetype : Parts... {};

} // namespace zero::test
