#pragma once

#include <cstddef>
#include <span>

namespace gpt {

/// @brief A reference to any object that gives a span for a parameter index, so that the model is
/// compiled once per type and not once per stage.
template <class T>
class Tensors {
public:
    template <class Source>
    explicit Tensors(Source const& source) noexcept
        : _source(&source), _get([](void const* from, std::size_t index) -> std::span<T> {
              return (*static_cast<Source const*>(from))[index];
          }) {}

    [[nodiscard]] std::span<T> operator[](std::size_t parameter) const {
        return _get(_source, parameter);
    }

private:
    void const* _source;
    std::span<T> (*_get)(void const*, std::size_t);
};

} // namespace gpt
