#include "cuda/ptx/memory.hpp"
#include "cuda/ptx/names.hpp"
#include "cuda/ptx/opcode.hpp"
#include "cuda/ptx/text.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

// Reads the text of a module: variables, functions and kernels.

namespace zero::test::ptx {

namespace {

/// The place of a function's code in the kernel that calls it, and of its parameters.
struct Placed {
    u32 begin = 0;
    std::vector<Range> in;
    std::vector<Range> out;
};

std::string without_comments(std::string const& text) {
    std::string result;
    result.reserve(text.size());
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text.compare(at, 2, "//") == 0) {
            at = std::min(text.find('\n', at), text.size());
            result += '\n';
        } else if (text.compare(at, 2, "/*") == 0) {
            at = std::min(text.find("*/", at), text.size() - 2) + 1;
        } else {
            result += text[at] == '\t' ? ' ' : text[at];
        }
    }
    return result;
}

bool begins_with(std::string const& text, char const* word) {
    return text.rfind(word, 0) == 0;
}

/// Translates the body of a kernel or of a function.
class BodyReader {
public:
    BodyReader(Module const& module, Kernel& kernel) : _kernel(kernel), _names(module, kernel) {}

    Names& names() { return _names; }
    /// Names of the functions that were called.
    [[nodiscard]] std::vector<std::string> const& called() const { return _called; }

    void read(std::string const& body) {
        for (std::size_t at = 0; at < body.size();) {
            char const c = body[at];
            if (std::isspace(static_cast<unsigned char>(c)) != 0) {
                ++at;
            } else if (c == '{' || c == '}') {
                c == '{' ? _names.begin_scope() : _names.end_scope();
                ++at;
            } else {
                at = read_statement(body, at);
            }
        }
        for (auto const& [instruction, label] : _branches) {
            auto const found = _labels.find(label);
            if (found == _labels.end()) {
                throw std::runtime_error("unknown label " + label);
            }
            _kernel.code[instruction].target = found->second;
        }
        add_instruction("ret", _names, _kernel);
    }

private:
    /// Reads to the end of a statement or label, and returns what follows.
    std::size_t read_statement(std::string const& body, std::size_t begin) {
        std::size_t end = begin;
        for (int depth = 0; end < body.size(); ++end) {
            char const c = body[end];
            depth += c == '{' ? 1 : c == '}' ? -1 : 0;
            bool const is_qualifier = c == ':' && body.compare(end, 2, "::") == 0;
            if (is_qualifier) {
                ++end;
            } else if (depth == 0 && (c == ';' || c == ':')) {
                break;
            }
        }
        std::string statement = trimmed(body.substr(begin, end - begin));
        std::replace(statement.begin(), statement.end(), '\n', ' ');
        if (end < body.size() && body[end] == ':') {
            _labels[statement] = static_cast<u32>(_kernel.code.size());
        } else if (!statement.empty()) {
            read_text(statement);
        }
        return end + 1;
    }

    void read_text(std::string const& statement) {
        if (begins_with(statement, ".reg")) {
            _names.add_registers(statement);
        } else if (begins_with(statement, ".param")) {
            _names.add_frame(Declaration(statement));
        } else if (begins_with(statement, ".shared")) {
            _names.add_shared(Declaration(statement));
        } else if (begins_with(statement, ".local")) {
            _names.add_local(Declaration(statement));
        } else if (statement[0] != '.') { // .loc and .pragma say nothing about the result
            auto const index = static_cast<u32>(_kernel.code.size());
            std::string const target = add_instruction(statement, _names, _kernel);
            if (_kernel.code[index].kind == Kind::branch) {
                _branches.emplace_back(index, target);
            } else if (!target.empty()) {
                _called.push_back(target);
            }
        }
    }

    Kernel& _kernel;
    Names _names;
    std::map<std::string, u32> _labels;
    std::vector<std::pair<u32, std::string>> _branches;
    std::vector<std::string> _called;
};

/// The text between the parentheses that begin at or after `from`, if there are any.
std::vector<std::string> parameters_in(std::string const& head, std::size_t from, std::size_t to) {
    std::size_t const begin = head.find('(', from);
    if (begin >= to || begin == std::string::npos) {
        return {};
    }
    return list_of(head.substr(begin, head.find(')', begin) - begin + 1));
}

class ModuleReader {
public:
    std::shared_ptr<Module> read(std::string const& text) {
        std::string const clean = without_comments(text);
        std::vector<Function> kernels; // read when all functions are known
        for (std::size_t at = 0; at < clean.size();) {
            at = read_item(clean, at, kernels);
        }
        for (Function const& kernel : kernels) {
            read_kernel(kernel);
        }
        return _module;
    }

private:
    std::size_t read_item(std::string const& text, std::size_t at, std::vector<Function>& kernels) {
        at = text.find_first_not_of(" \n\r", at);
        if (at == std::string::npos) {
            return text.size();
        }
        for (char const* directive : {".version", ".target", ".address_size"}) {
            if (text.compare(at, std::string(directive).size(), directive) == 0) {
                std::size_t const end = std::min(text.find('\n', at), text.size());
                if (text[at + 1] == 't') {
                    std::string const target = trimmed(text.substr(at + 7, end - at - 7));
                    _module->target = target.substr(0, target.find(','));
                }
                return end;
            }
        }
        std::size_t const end = text.find_first_of(";{", at);
        if (end == std::string::npos) {
            throw std::runtime_error("no PTX: " + text.substr(at, 60));
        }
        std::string const head = text.substr(at, end - at);
        bool const is_kernel = head.find(".entry") != std::string::npos;
        if (!is_kernel && head.find(".func") == std::string::npos) {
            std::size_t const last = std::min(text.find(';', at), text.size());
            read_variable(text.substr(at, last - at));
            return last + 1;
        }
        if (text[end] == ';') { // declares a function
            return end + 1;
        }
        std::size_t last = end + 1;
        for (int depth = 1; depth != 0 && last < text.size(); ++last) {
            depth += text[last] == '{' ? 1 : text[last] == '}' ? -1 : 0;
        }
        Function function{head, text.substr(end + 1, last - end - 2)};
        if (is_kernel) {
            kernels.push_back(std::move(function));
        } else {
            std::string const name = name_of(head);
            _module->functions[name] = std::move(function);
        }
        return last;
    }

    /// The name of a function follows its result in parentheses, if there is one.
    static std::string name_of(std::string const& head) {
        bool const is_kernel = head.find(".entry") != std::string::npos;
        std::string rest =
            trimmed(head.substr(is_kernel ? head.find(".entry") + 6 : head.find(".func") + 5));
        if (rest[0] == '(') {
            rest = trimmed(rest.substr(rest.find(')') + 1));
        }
        return rest.substr(0, rest.find_first_of("( \n"));
    }

    void read_variable(std::string text) {
        std::replace(text.begin(), text.end(), '\n', ' ');
        std::size_t const equals = text.find('=');
        std::string const head = text.substr(0, equals);
        if (head.find(".global") == std::string::npos && head.find(".const") == std::string::npos) {
            return;
        }
        Declaration const declaration(head);
        Variable variable;
        variable.initial.resize(std::max<u64>(declaration.bytes, 1));
        if (equals != std::string::npos) {
            u64 at = 0;
            for (std::string const& value : list_of(trimmed(text.substr(equals + 1)))) {
                u64 const bits = integer_of(value);
                std::memcpy(variable.initial.data() + at, &bits, declaration.element_bytes);
                at += declaration.element_bytes;
            }
        }
        u64 const bytes = (variable.initial.size() + 255) / 256 * 256;
        void* const memory = std::aligned_alloc(256, bytes);
        std::memcpy(memory, variable.initial.data(), variable.initial.size());
        variable.memory = std::shared_ptr<void>(memory, [](void* at) {
            Memory::instance().remove(at);
            std::free(at);
        });
        Memory::instance().add(memory, variable.initial.size(), MemoryKind::variable, true);
        _module->variables[declaration.name] = std::move(variable);
    }

    void read_kernel(Function const& function) {
        std::string const name = name_of(function.head);
        Kernel& kernel = _module->kernels[name];
        kernel.name = name;
        BodyReader body(*_module, kernel);
        for (auto const& text : parameters_in(function.head, 0, std::string::npos)) {
            body.names().add_parameter(Declaration(text));
        }
        std::size_t const bounds = function.head.find(".maxntid");
        if (bounds != std::string::npos) {
            kernel.most_threads = 1;
            std::string const numbers = function.head.substr(
                bounds + 8, function.head.find_first_of("\n.", bounds + 8) - bounds - 8);
            for (std::string const& number : split(numbers, ',')) {
                kernel.most_threads *= static_cast<u32>(integer_of(number));
            }
        }
        try {
            body.read(function.body);
            add_functions(kernel, body.called());
        } catch (std::exception const& error) {
            kernel.defect = error.what();
        }
    }

    /// Appends the code of each function that a kernel calls, and of those that these call.
    void add_functions(Kernel& kernel, std::vector<std::string> called) {
        std::map<std::string, Placed> placed;
        for (std::size_t index = 0; index < called.size(); ++index) {
            std::string const name = called[index];
            if (placed.count(name) != 0) {
                continue;
            }
            auto const found = _module->functions.find(name);
            if (found == _module->functions.end()) {
                throw std::runtime_error("call of the unknown function " + name);
            }
            auto const& [head, text] = found->second;
            BodyReader body(*_module, kernel);
            Placed& at = placed[name];
            std::size_t const begin = head.find(".func");
            std::size_t const end = head.find(name, begin);
            for (auto const& result : parameters_in(head, begin, end)) {
                at.out.push_back(body.names().add_frame(Declaration(result)));
            }
            for (auto const& parameter : parameters_in(head, end, std::string::npos)) {
                at.in.push_back(body.names().add_frame(Declaration(parameter)));
            }
            at.begin = static_cast<u32>(kernel.code.size());
            body.read(text);
            called.insert(called.end(), body.called().begin(), body.called().end());
        }
        for (Call& call : kernel.calls) {
            Placed const& at = placed.at(call.name);
            call.target = at.begin;
            for (std::size_t index = 0; index < call.in.size(); ++index) {
                call.in[index].to = at.in.at(index).begin;
            }
            for (std::size_t index = 0; index < call.out.size(); ++index) {
                call.out[index].from = at.out.at(index).begin;
            }
        }
    }

    std::shared_ptr<Module> _module = std::make_shared<Module>();
};

} // namespace

std::shared_ptr<Module> parse(std::string const& text) {
    return ModuleReader().read(text);
}

} // namespace zero::test::ptx
