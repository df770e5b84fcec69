#pragma once

namespace zero::detail {

/// @brief A function without arguments that is called while the expression lives that names it; or none.
class FunctionRef {
public:
    FunctionRef() = default;

    template <class F>
    FunctionRef(F const& function) noexcept // NOLINT(google-explicit-constructor): an argument
        : _function(&function), _call([](void const* f) { (*static_cast<F const*>(f))(); }) {}

    explicit operator bool() const noexcept { return _call != nullptr; }
    void operator()() const { _call(_function); }

private:
    void const* _function = nullptr;
    void (*_call)(void const*) = nullptr;
};

} // namespace zero::detail
