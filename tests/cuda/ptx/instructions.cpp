#include "cuda/ptx/names.hpp"
#include "cuda/ptx/opcode.hpp"
#include "cuda/ptx/text.hpp"

#include <set>
#include <stdexcept>

// The form of each instruction: which modifiers it may have, and what its operands are.

namespace zero::test::ptx {

namespace {

/// Modifiers that change nothing here: scopes, orders and caches of memory, and the one rounding
/// that is done.
bool is_ignored(std::string const& modifier) {
    static std::set<std::string> const names{
        "rn",  "full", "approx",  "sync", "aligned", "volatile", "relaxed", "acquire", "cta",
        "gpu", "sys",  "nc",      "ca",   "cg",      "cs",       "cv",      "wb",      "wt",
        "lu",  "gl",   "acq_rel", "sc",   "release", "weak",     "clamp",   "b32",     "lo"};
    return names.count(modifier) != 0 || modifier.rfind("L1::", 0) == 0
           || modifier.rfind("L2::", 0) == 0;
}

using Set = std::set<std::string>;

Set const no_modifiers;
Set const spaces{"global", "shared", "shared::cta", "param", "local", "const", "v2", "v4", "v8"};

/// The modifiers of an instruction that change what it does. @throws std::runtime_error for a name
/// that is not known
Set const& modifiers_of(Opcode const& opcode) {
    static Set const comparisons{"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls",
                                 "hi",  "hs",  "equ", "neu", "ltu", "leu", "gtu", "geu",
                                 "num", "nan", "and", "or",  "xor", "ftz"};
    static Set const flush{"ftz"};
    static Set const atomics{"global", "shared", "shared::cta", "add", "min", "max",
                             "exch",   "cas",    "and",         "or",  "xor"};
    static std::map<std::string, Set> const table{
        {"add", flush},
        {"sub", flush},
        {"mul", {"ftz", "hi", "wide"}},
        {"div", flush},
        {"rem", {}},
        {"min", flush},
        {"max", flush},
        {"fma", flush},
        {"mad", {"hi", "wide"}},
        {"neg", flush},
        {"abs", flush},
        {"copysign", {}},
        {"sqrt", flush},
        {"rcp", flush},
        {"ex2", flush},
        {"lg2", flush},
        {"sin", flush},
        {"cos", flush},
        {"tanh", {}},
        {"rsqrt", flush},
        {"and", {}},
        {"or", {}},
        {"xor", {}},
        {"not", {}},
        {"cnot", {}},
        {"popc", {}},
        {"clz", {}},
        {"brev", {}},
        {"shl", {}},
        {"shr", {}},
        {"shf", {"l", "r", "wrap"}},
        {"lop3", {}},
        {"prmt", {}},
        {"bfi", {}},
        {"bfe", {}},
        {"mov", {}},
        {"selp", {}},
        {"setp", comparisons},
        {"set", comparisons},
        {"cvt", {"ftz", "rni", "rzi", "rmi", "rpi", "rz"}},
        {"ld", spaces},
        {"ldu", spaces},
        {"st", spaces},
        {"atom", atomics},
        {"red", atomics},
        {"cvta", {"to", "global", "shared", "local", "param", "const"}},
        {"isspacep", {"global", "shared", "local", "param", "const"}},
        {"shfl", {"up", "down", "bfly", "idx"}},
        {"vote", {"ballot", "any", "all", "uni"}},
        {"redux", {"add", "min", "max", "and", "or", "xor"}},
        {"match", {"any"}},
        {"bar", {"warp", "red", "and", "or", "popc"}},
        {"barrier", {"red", "and", "or", "popc"}},
        {"call", {"uni"}},
        {"bra", {"uni"}},
        {"ret", {"uni"}},
        {"exit", {}},
        {"trap", {}},
        {"membar", {}},
        {"fence", {}},
        {"nanosleep", {"u32"}},
        {"prefetch", {"global"}},
        {"prefetchu", {}}};
    auto const found = table.find(opcode.name);
    return found != table.end() ? found->second
                                : throw std::runtime_error("unknown instruction " + opcode.text);
}

/// Nothing is left out silently: a modifier that changes the result and is not done is refused.
void require_known_modifiers(Opcode const& opcode) {
    Set const& known = modifiers_of(opcode);
    for (std::string const& modifier : opcode.modifiers) {
        bool const is_directed = opcode.name == "cvt" && modifier == "rz"
                                 && opcode.types[0].kind == Type::Kind::floating;
        if (is_directed || (known.count(modifier) == 0 && !is_ignored(modifier))) {
            throw std::runtime_error("unknown instruction " + opcode.text);
        }
    }
}

Space space_of(Opcode const& opcode) {
    return opcode.has("global") || opcode.has("const")         ? Space::global
           : opcode.has("shared") || opcode.has("shared::cta") ? Space::shared
           : opcode.has("param")                               ? Space::parameter
           : opcode.has("local")                               ? Space::local
                                                               : Space::generic;
}

/// Fills one instruction from its text.
class Reader {
public:
    Reader(Names& names, Instruction& instruction, Opcode const& opcode, std::string const& rest)
        : _names(names), _to(instruction), _opcode(opcode), _operands(split(rest, ',')),
          _width(opcode.type().width()) {
        _to.flushes = opcode.has("ftz");
        _to.bytes = opcode.type().bytes;
        _to.is_signed = opcode.type().is_signed();
        _to.space = space_of(opcode);
        _to.operation = operation_of(opcode);
    }

    void read() {
        std::string const& name = _opcode.name;
        if (name == "ld" || name == "ldu") {
            std::size_t const count = read_list(0, 0);
            read_address(count, 1);
        } else if (name == "st") {
            read_address(0, 0);
            read_list(1, 1);
        } else if (name == "atom" || name == "red") {
            read_atomic(name == "atom" ? 1 : 0);
        } else if (name == "mov") {
            read_move();
        } else if (name == "setp") {
            read_predicates();
        } else if (name == "cvt") {
            use(0, _operands.at(0), _opcode.types.at(0).width());
            for (std::size_t at = 1; at < _operands.size(); ++at) {
                use(at, _operands[at], _width);
            }
        } else if (name == "cvta" || name == "isspacep") {
            use(0, _operands.at(0), Width::eight);
            use(1, _operands.at(1), Width::eight);
        } else if (name == "lop3") {
            _to.immediate = static_cast<s64>(integer_of(_operands.at(4)));
            _operands.resize(4);
            use_all();
        } else {
            use_all();
        }
        _to.execute = execute();
        require_known();
    }

    /// Instructions of a whole warp: the mask comes last.
    void read_warp_wide() {
        std::string const& name = _opcode.name;
        if (name == "shfl") {
            auto const results = split(_operands.at(0), '|');
            use(0, results.at(0), Width::four);
            if (results.size() > 1) {
                use(1, results[1], Width::predicate);
            }
            for (std::size_t at = 1; at < _operands.size(); ++at) {
                use(at + 1, _operands[at], Width::four);
            }
            _to.sources = static_cast<u8>(_operands.size());
        } else {
            for (std::size_t at = 0; at < _operands.size(); ++at) {
                use(at, _operands[at], name == "vote" && at == 1 ? Width::predicate : Width::four);
            }
            _to.sources = static_cast<u8>(_operands.size() - 1);
        }
        _to.kind = Kind::warp_wide;
        _to.execute = warp_wide(_opcode);
        require_known();
    }

    /// A barrier of the whole block, perhaps with a reduction of a predicate.
    void read_barrier() {
        bool const reduces = _opcode.has("red");
        if (_operands.size() != (reduces ? 3U : 1U)
            || integer_of(_operands[reduces ? 1 : 0]) != 0) {
            throw std::runtime_error("unknown instruction " + _opcode.text
                                     + " with a number or a count of threads");
        }
        _to.kind = reduces ? Kind::reducing_barrier : Kind::barrier;
        if (reduces) {
            use(0, _operands[0], Width::four);
            use(2, _operands[2], Width::predicate);
            _to.operation = _opcode.has("or") ? 0 : _opcode.has("and") ? 1 : 2;
        }
    }

    /// A call `(results), name, (arguments)`.
    std::string read_call(Kernel& kernel) {
        Call call;
        std::size_t at = 0;
        auto const frame = [&](std::string const& name) {
            auto const found = _names.find_frame(name);
            return found ? *found : throw std::runtime_error("unknown parameter " + name);
        };
        if (_operands.at(0)[0] == '(') {
            for (std::string const& name : list_of(_operands[at++])) {
                call.out.push_back({0, frame(name).begin, frame(name).bytes});
            }
        }
        call.name = _operands.at(at++);
        if (at < _operands.size()) {
            for (std::string const& name : list_of(_operands[at])) {
                call.in.push_back({frame(name).begin, 0, frame(name).bytes});
            }
        }
        _to.kind = Kind::call;
        _to.immediate = static_cast<s64>(kernel.calls.size());
        kernel.calls.push_back(call);
        return call.name;
    }

private:
    void require_known() const {
        if (_to.execute == nullptr) {
            throw std::runtime_error("unknown instruction " + _opcode.text);
        }
    }

    void use(std::size_t at, std::string const& text, Width width) {
        _to.operands.at(at) = _names.operand(text, width);
    }

    /// Operands of one width, but for those of shifts, of bit fields and of selections.
    void use_all() {
        std::string const& name = _opcode.name;
        bool const is_wide = _opcode.has("wide");
        std::size_t const last = _operands.empty() ? 0 : _operands.size() - 1;
        for (std::size_t at = 0; at <= last && !_operands.empty(); ++at) {
            Width width = _width;
            if (((name == "shl" || name == "shr") && at == last) || (name == "bfe" && at >= 2)
                || (name == "bfi" && at >= 3)) {
                width = Width::four;
            } else if (name == "selp" && at == 3) {
                width = Width::predicate;
            } else if (is_wide && (at == 0 || at == 3) && _opcode.type().bytes == 4) {
                width = Width::eight;
            }
            use(at, _operands[at], width);
        }
        _to.sources = static_cast<u8>(last);
    }

    std::size_t read_list(std::size_t first, std::size_t operand) {
        auto const elements = list_of(_operands.at(operand));
        _to.elements = static_cast<u8>(elements.size());
        for (std::size_t element = 0; element < elements.size(); ++element) {
            use(first + element, elements[element], _width);
        }
        return elements.size();
    }

    /// An address such as [%rd1+16], [variable] or [parameter of a call].
    void read_address(std::size_t at, std::size_t operand) {
        std::string const& text = _operands.at(operand);
        std::string const inside = trimmed(text.substr(1, text.size() - 2));
        std::size_t const plus = inside.find('+', 1);
        std::string const base = trimmed(inside.substr(0, plus));
        _to.immediate = plus == std::string::npos
                            ? 0
                            : static_cast<s64>(integer_of(trimmed(inside.substr(plus + 1))));
        if (auto const found = _names.find_register(base)) {
            _to.operands.at(at) = *found;
        } else if (auto const frame = _names.find_frame(base)) {
            _to.immediate += frame->begin;
            _to.space = Space::local;
        } else {
            auto const variable = _names.find_variable(base);
            _to.immediate += static_cast<s64>(variable ? *variable : integer_of(base));
        }
    }

    /// @param results 1 if the old value is returned
    void read_atomic(std::size_t results) {
        if (results == 1) {
            use(0, _operands.at(0), _width);
        }
        read_address(1, results);
        use(2, _operands.at(results + 1), _width);
        if (_operands.size() > results + 2) {
            use(3, _operands[results + 2], _width);
        }
    }

    void read_move() {
        std::string const& to = _operands.at(0);
        std::string const& from = _operands.at(1);
        if (from == "%clock64" || from == "%clock" || from == "%globaltimer") {
            use(0, to, _width);
            _family = "clock";
        } else if (to[0] == '{' || from[0] == '{') {
            bool const unpacks = to[0] == '{';
            auto const elements = list_of(unpacks ? to : from);
            _to.elements = static_cast<u8>(elements.size());
            _to.bytes = static_cast<u8>(_opcode.type().bytes / elements.size());
            std::size_t const first = unpacks ? 0 : 1;
            for (std::size_t element = 0; element < elements.size(); ++element) {
                use(first + element, elements[element],
                    _to.bytes == 8 ? Width::eight : Width::four);
            }
            use(unpacks ? elements.size() : 0, unpacks ? from : to, _width);
            _family = unpacks ? "unpack" : "pack";
        } else {
            use_all();
        }
    }

    /// The results p|q, a, b, and a further predicate.
    void read_predicates() {
        auto const results = split(_operands.at(0), '|');
        for (std::size_t at = 0; at < results.size(); ++at) {
            use(at, results[at], Width::predicate);
        }
        use(2, _operands.at(1), _width);
        use(3, _operands.at(2), _width);
        if (_operands.size() > 3) {
            use(4, _operands[3], Width::predicate);
        }
    }

    [[nodiscard]] Execute execute() const {
        Opcode opcode = _opcode;
        if (!_family.empty()) {
            opcode.name = _family;
        }
        for (auto* const family :
             {arithmetic, bit_operation, comparison, conversion, memory_access}) {
            if (Execute const found = family(opcode)) {
                return found;
            }
        }
        return nullptr;
    }

    Names& _names;
    Instruction& _to;
    Opcode const& _opcode;
    std::vector<std::string> _operands;
    Width _width;
    std::string _family; ///< of the three forms of mov
};

} // namespace

std::string add_instruction(std::string const& text, Names& names, Kernel& kernel) {
    Instruction instruction;
    std::string rest = text;
    if (rest[0] == '@') {
        std::size_t const end = rest.find_first_of(" \t");
        instruction.guard = names.operand(rest.substr(1, end - 1), Width::predicate);
        rest = trimmed(rest.substr(end));
    }
    std::size_t const end = rest.find_first_of(" \t{(");
    Opcode const opcode(rest.substr(0, end));
    rest = end == std::string::npos ? "" : trimmed(rest.substr(end));
    require_known_modifiers(opcode);
    std::string const& name = opcode.name;
    std::string target;
    Reader reader(names, instruction, opcode, rest);
    if (name == "bra") {
        instruction.kind = Kind::branch;
        target = rest;
    } else if (name == "call") {
        target = reader.read_call(kernel);
    } else if (name == "ret" || name == "exit") {
        instruction.kind = Kind::leave;
    } else if (name == "trap") {
        instruction.kind = Kind::trap;
    } else if (name == "shfl" || name == "vote" || name == "redux" || name == "match"
               || (name == "bar" && opcode.has("warp"))) {
        reader.read_warp_wide();
    } else if (name == "bar" || name == "barrier") {
        reader.read_barrier();
    } else {
        reader.read();
    }
    kernel.code.push_back(instruction);
    kernel.text.push_back(text);
    return target;
}

} // namespace zero::test::ptx
