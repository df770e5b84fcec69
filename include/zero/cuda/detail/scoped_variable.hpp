#pragma once

#include "../../core/detail/namespace.hpp"
#include "../nccl_system.hpp"

#include <string>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Sets an environment variable for a scope, and restores the previous state afterwards.
class ScopedVariable {
public:
    ScopedVariable(NcclSystem& system, char const* name, char const* value)
        : _system(&system), _name(name) {
        char const* const previous = system.variable(name);
        _had_value = previous != nullptr;
        _previous = _had_value ? previous : "";
        system.set_variable(name, value);
    }

    ScopedVariable(ScopedVariable const&) = delete;
    ScopedVariable& operator=(ScopedVariable const&) = delete;
    ~ScopedVariable() { _system->set_variable(_name, _had_value ? _previous.c_str() : nullptr); }

private:
    NcclSystem* _system;
    char const* _name;
    bool _had_value = false;
    std::string _previous;
};

} // namespace ZERO_NAMESPACE::cuda::detail
