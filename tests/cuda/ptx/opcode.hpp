#pragma once

#include "program.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

// The name of an instruction with its modifiers and types, and the functions that execute it.

namespace zero::test::ptx {

struct Type {
    enum class Kind : u8 {
        none,
        predicate,
        bits,
        natural,
        integer,
        floating,
        half,
        bfloat,
        half_pair,
        bfloat_pair
    };
    Kind kind = Kind::none;
    u8 bytes = 0;

    [[nodiscard]] Width width() const {
        return kind == Kind::predicate ? Width::predicate : bytes == 8 ? Width::eight : Width::four;
    }
    [[nodiscard]] bool is_signed() const { return kind == Kind::integer; }
    friend bool operator==(Type, Type) = default;
};

/// Returns the type of this name, such as u32, or none.
Type type_of(std::string_view name);

/// An opcode such as ld.global.v2.u64.
struct Opcode {
    explicit Opcode(std::string const& whole);

    std::string text;
    std::string name;                   ///< such as ld
    std::vector<std::string> modifiers; ///< such as global and v2
    std::vector<Type> types;

    [[nodiscard]] bool has(std::string_view modifier) const {
        return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
    }
    /// The last type: that of the operands.
    [[nodiscard]] Type type() const { return types.empty() ? Type{} : types.back(); }
};

template <class T>
struct Tag {
    using type = T;
};

/// Calls `choose(Tag<T>{})` with the C++ type of a PTX type; null if it is none of them.
template <class Choose>
Execute for_integer(Type type, Choose const& choose) {
    bool const is_signed = type.is_signed();
    if (type.kind != Type::Kind::bits && type.kind != Type::Kind::natural && !is_signed) {
        return nullptr;
    }
    switch (type.bytes) {
    case 2: return is_signed ? choose(Tag<s16>{}) : choose(Tag<u16>{});
    case 4: return is_signed ? choose(Tag<s32>{}) : choose(Tag<u32>{});
    case 8: return is_signed ? choose(Tag<s64>{}) : choose(Tag<u64>{});
    default: return nullptr;
    }
}
template <class Choose>
Execute for_floating(Type type, Choose const& choose) {
    if (type.kind != Type::Kind::floating) {
        return nullptr;
    }
    return type.bytes == 4 ? choose(Tag<float>{}) : choose(Tag<double>{});
}
template <class Choose>
Execute for_number(Type type, Choose const& choose) {
    Execute const found = for_integer(type, choose);
    return found != nullptr ? found : for_floating(type, choose);
}

/// Returns how an instruction is executed, or null if its name or its type is of another family.
Execute arithmetic(Opcode const& opcode);
Execute bit_operation(Opcode const& opcode);
Execute comparison(Opcode const& opcode);
Execute conversion(Opcode const& opcode);
Execute memory_access(Opcode const& opcode);
Execute warp_wide(Opcode const& opcode);

/// Which one of its family an instruction is; see the file that executes it.
u8 operation_of(Opcode const& opcode);

} // namespace zero::test::ptx
