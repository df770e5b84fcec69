#include "cuda/ptx/names.hpp"

#include "cuda/ptx/opcode.hpp"
#include "cuda/ptx/text.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace zero::test::ptx {

namespace {

u64 aligned(u64 value, u64 alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

} // namespace

Type type_of(std::string_view name) {
    static std::map<std::string, Type, std::less<>> const types{
        {"pred", {Type::Kind::predicate, 1}},    {"b8", {Type::Kind::bits, 1}},
        {"b16", {Type::Kind::bits, 2}},          {"b32", {Type::Kind::bits, 4}},
        {"b64", {Type::Kind::bits, 8}},          {"u8", {Type::Kind::natural, 1}},
        {"u16", {Type::Kind::natural, 2}},       {"u32", {Type::Kind::natural, 4}},
        {"u64", {Type::Kind::natural, 8}},       {"s8", {Type::Kind::integer, 1}},
        {"s16", {Type::Kind::integer, 2}},       {"s32", {Type::Kind::integer, 4}},
        {"s64", {Type::Kind::integer, 8}},       {"f32", {Type::Kind::floating, 4}},
        {"f64", {Type::Kind::floating, 8}},      {"f16", {Type::Kind::half, 2}},
        {"bf16", {Type::Kind::bfloat, 2}},       {"f16x2", {Type::Kind::half_pair, 4}},
        {"bf16x2", {Type::Kind::bfloat_pair, 4}}};
    auto const found = types.find(name);
    return found != types.end() ? found->second : Type{};
}

Opcode::Opcode(std::string const& whole) : text(whole) {
    std::vector<std::string> const parts = split(whole, '.');
    name = parts.empty() ? whole : parts[0];
    for (std::size_t part = 1; part < parts.size(); ++part) {
        Type const type = type_of(parts[part]);
        if (type.kind == Type::Type::Kind::none) {
            modifiers.push_back(parts[part]);
        } else {
            types.push_back(type);
        }
    }
}

Declaration::Declaration(std::string const& text) {
    std::istringstream words(text);
    std::optional<u64> alignment_of_memory;
    bool is_pointer = false; // what follows describes the memory that it points to
    for (std::string word; words >> word;) {
        if (word == ".align") {
            u64 value = 0;
            words >> value;
            if (!is_pointer) {
                alignment_of_memory = value;
            }
        } else if (word == ".ptr") {
            is_pointer = true;
        } else if (word[0] == '.') {
            Type const type = type_of(word.substr(1));
            element_bytes = type.bytes != 0 ? type.bytes : element_bytes;
        } else {
            std::size_t bracket = word.find('[');
            name = word.substr(0, bracket);
            bytes = element_bytes;
            for (; bracket != std::string::npos; bracket = word.find('[', bracket + 1)) {
                bytes *= std::strtoull(word.c_str() + bracket + 1, nullptr, 10);
            }
        }
    }
    alignment = alignment_of_memory.value_or(element_bytes);
}

u64 integer_of(std::string const& text) {
    bool const is_negative = !text.empty() && text[0] == '-';
    char const* const digits = text.c_str() + (is_negative ? 1 : 0);
    char* end = nullptr;
    u64 const value = std::strtoull(digits, &end, 0);
    if (end == digits || (*end != '\0' && *end != 'U')) {
        throw std::runtime_error("'" + text + "' is neither a name nor a number");
    }
    return is_negative ? 0 - value : value;
}

Operand Names::allocate(Width width) {
    Operand const operand{static_cast<s32>(_kernel.register_bytes), width};
    _kernel.register_bytes += width == Width::eight ? 8 * warp_lanes : 4 * warp_lanes;
    return operand;
}

void Names::add_registers(std::string const& statement) {
    std::istringstream words(statement);
    std::string reg;
    std::string type;
    words >> reg >> type;
    Width const width = type_of(type.substr(1)).width();
    std::string rest;
    std::getline(words, rest);
    for (std::string const& name : split(rest, ',')) {
        std::size_t const bracket = name.find('<');
        if (bracket == std::string::npos) {
            _scopes.back()[name] = allocate(width);
            continue;
        }
        int const count = std::atoi(name.c_str() + bracket + 1);
        for (int index = 0; index < count; ++index) {
            _scopes.back()[name.substr(0, bracket) + std::to_string(index)] = allocate(width);
        }
    }
}

u64 Names::place(u32& total, Declaration const& declaration) {
    u64 const begin = aligned(total, declaration.alignment);
    total = static_cast<u32>(begin + declaration.bytes);
    return begin;
}

void Names::add_parameter(Declaration const& declaration) {
    u64 const begin = place(_kernel.parameter_bytes, declaration);
    _variables[declaration.name] = begin;
    _kernel.parameters.push_back({static_cast<u32>(begin), static_cast<u32>(declaration.bytes)});
}

void Names::add_shared(Declaration const& declaration) {
    _variables[declaration.name] = place(_kernel.shared_bytes, declaration);
}

void Names::add_local(Declaration const& declaration) {
    _variables[declaration.name] = place(_kernel.local_bytes, declaration);
}

Range Names::add_frame(Declaration const& declaration) {
    _kernel.local_bytes = static_cast<u32>(aligned(_kernel.local_bytes, 16));
    Range const range{static_cast<u32>(place(_kernel.local_bytes, declaration)),
                      static_cast<u32>(declaration.bytes)};
    _frames[declaration.name] = range;
    return range;
}

std::optional<Operand> Names::find_register(std::string const& name) const {
    for (auto scope = _scopes.rbegin(); scope != _scopes.rend(); ++scope) {
        auto const found = scope->find(name);
        if (found != scope->end()) {
            return found->second;
        }
    }
    return std::nullopt;
}

std::optional<Range> Names::find_frame(std::string const& name) const {
    auto const found = _frames.find(name);
    return found != _frames.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<u64> Names::find_variable(std::string const& name) const {
    auto const own = _variables.find(name);
    if (own != _variables.end()) {
        return own->second;
    }
    auto const global = _module.variables.find(name);
    return global != _module.variables.end()
               ? std::optional(reinterpret_cast<u64>(global->second.memory.get()))
               : std::nullopt;
}

Operand Names::constant(u64 bits, Width width) {
    auto const [place, is_new] = _constants.try_emplace({bits, width});
    if (is_new) {
        place->second = allocate(width);
        _kernel.constants.push_back({place->second, bits});
    }
    return place->second;
}

Operand Names::special(std::string const& name) {
    static std::map<std::string, Special> const specials{
        {"%tid.x", Special::thread_x},
        {"%tid.y", Special::thread_y},
        {"%tid.z", Special::thread_z},
        {"%ntid.x", Special::threads_x},
        {"%ntid.y", Special::threads_y},
        {"%ntid.z", Special::threads_z},
        {"%ctaid.x", Special::block_x},
        {"%ctaid.y", Special::block_y},
        {"%ctaid.z", Special::block_z},
        {"%nctaid.x", Special::blocks_x},
        {"%nctaid.y", Special::blocks_y},
        {"%nctaid.z", Special::blocks_z},
        {"%laneid", Special::lane},
        {"%warpid", Special::warp},
        {"%lanemask_lt", Special::lanes_less},
        {"%lanemask_le", Special::lanes_up_to},
        {"%lanemask_gt", Special::lanes_greater},
        {"%lanemask_ge", Special::lanes_from},
        {"%lanemask_eq", Special::lanes_equal},
        {"%smid", Special::multiprocessor},
        {"%dynamic_smem_size", Special::dynamic_shared_bytes}};
    auto const found = specials.find(name);
    if (found == specials.end()) {
        throw std::runtime_error("unknown register " + name);
    }
    auto const [place, is_new] = _specials.try_emplace(found->second);
    if (is_new) {
        place->second = allocate(Width::four);
        _kernel.specials.push_back({place->second, found->second});
    }
    return place->second;
}

Operand Names::operand(std::string text, Width width) {
    if (text == "_") { // a result that is not used
        return {-1, width};
    }
    bool const is_inverted = text[0] == '!';
    if (is_inverted) {
        text.erase(0, 1);
    }
    if (auto found = find_register(text)) {
        found->is_inverted = is_inverted;
        return *found;
    }
    if (text[0] == '%') {
        return special(text);
    }
    bool const is_float =
        text.size() > 2 && text[0] == '0' && std::string("fFdD").find(text[1]) != std::string::npos;
    if (is_float) { // 0f3F800000: the bits
        return constant(std::strtoull(text.c_str() + 2, nullptr, 16), width);
    }
    if (text == "WARP_SZ") {
        return constant(warp_lanes, width);
    }
    std::size_t const plus = text.find('+');
    if (auto const address = find_variable(trimmed(text.substr(0, plus)))) {
        u64 const offset =
            plus == std::string::npos ? 0 : integer_of(trimmed(text.substr(plus + 1)));
        return constant(*address + offset, width);
    }
    u64 const value = integer_of(text);
    return constant(width == Width::predicate ? (value != 0 ? 1 : 0) : value, width);
}

} // namespace zero::test::ptx
