#pragma once

namespace zero::detail {

/// @brief A function that is called while the expression lives that names it; or none.
template <class... Arguments>
class FunctionRef {
public:
    FunctionRef() = default;

    template <class F>
    FunctionRef(F const& function) noexcept // NOLINT(google-explicit-constructor): an argument
        : _function(&function), _call([](void const* f, Arguments... arguments) { (*static_cast<F const*>(f))(arguments...); }) {}

    explicit operator bool() const noexcept { return _call != nullptr; }
    void operator()(Arguments... arguments) const { _call(_function, arguments...); }

private:
    void const* _function = nullptr;
    void (*_call)(void const*, Arguments...) = nullptr;
};

} // namespace zero::detail
