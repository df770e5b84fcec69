#pragma once

#include "program.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zero::test::ptx {

/// A variable or parameter as it is declared, such as `.align 8 .b8 name[328]`.
struct Declaration {
    explicit Declaration(std::string const& text);

    std::string name;
    u64 bytes = 0;
    u64 element_bytes = 1;
    u64 alignment = 1;
};

/// @throws std::runtime_error unless the text is an integer
u64 integer_of(std::string const& text);

/// The names of a kernel or of a function that it calls: registers, and variables of each space.
/// Gives each register a place among those of the kernel.
class Names {
public:
    Names(Module const& module, Kernel& kernel) : _module(module), _kernel(kernel) {}

    void begin_scope() { _scopes.emplace_back(); }
    void end_scope() { _scopes.pop_back(); }

    /// Declares the registers of a statement such as `.reg .b32 %r<5>`.
    void add_registers(std::string const& statement);
    void add_parameter(Declaration const& declaration);
    void add_shared(Declaration const& declaration);
    void add_local(Declaration const& declaration);
    /// Declares a parameter of a call or of a function: it lies in local memory.
    Range add_frame(Declaration const& declaration);

    /// Returns the register of this name, if there is one.
    [[nodiscard]] std::optional<Operand> find_register(std::string const& name) const;
    /// Returns the place of a parameter of a call or of a function, if there is one.
    [[nodiscard]] std::optional<Range> find_frame(std::string const& name) const;
    /// Returns the address of a variable in its space, if there is one.
    [[nodiscard]] std::optional<u64> find_variable(std::string const& name) const;

    /// Returns a register, or one that holds a constant. @throws std::runtime_error
    Operand operand(std::string text, Width width);
    Operand constant(u64 bits, Width width);

private:
    Operand allocate(Width width);
    Operand special(std::string const& name);
    u64 place(u32& total, Declaration const& declaration);

    Module const& _module;
    Kernel& _kernel;
    std::vector<std::map<std::string, Operand>> _scopes{1};
    std::map<std::string, u64> _variables;
    std::map<std::string, Range> _frames;
    std::map<std::pair<u64, Width>, Operand> _constants;
    std::map<Special, Operand> _specials;
};

/// Translates one instruction and appends it to the kernel. @throws std::runtime_error, with its
/// name, if it is not known
/// @returns the label of a branch, or the name of a called function; otherwise empty
std::string add_instruction(std::string const& text, Names& names, Kernel& kernel);

} // namespace zero::test::ptx
