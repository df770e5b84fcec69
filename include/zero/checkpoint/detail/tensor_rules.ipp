#pragma once

#include "../tensor_rules.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../layout/detail/partition/shape.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// A longer list of problems ends with the number of the others.
inline constexpr std::size_t listed_problems = 20;

ZERO_COLD_INLINE std::string listed(std::span<std::string const> problems) {
    std::string list;
    for (std::string const& problem : problems.first(smaller(problems.size(), listed_problems))) {
        list += "\n  " + problem;
    }
    if (problems.size() > listed_problems) {
        list += text({"\n  and ", problems.size() - listed_problems, " more"});
    }
    return list;
}

ZERO_COLD_INLINE bool matches(std::string_view pattern, std::string_view name,
                              std::vector<std::string>& texts) {
    std::size_t const star = pattern.find('*');
    if (star == std::string_view::npos) {
        return pattern == name;
    }
    if (name.substr(0, star) != pattern.substr(0, star)) {
        return false;
    }
    for (std::size_t end = star + 1; end <= name.size(); ++end) {
        texts.emplace_back(name.substr(star, end - star));
        if (matches(pattern.substr(star + 1), name.substr(end), texts)) {
            return true;
        }
        texts.pop_back();
    }
    return false;
}

/// Returns the name that a pattern becomes with texts in place of `*`.
ZERO_COLD_INLINE std::string filled(std::string_view pattern,
                                    std::vector<std::string> const& texts) {
    std::string name;
    std::size_t next = 0;
    for (char const character : pattern) {
        if (character == '*') {
            name += texts[next++];
        } else {
            name += character;
        }
    }
    return name;
}

ZERO_COLD_INLINE void require_valid(TensorRules const& rules) {
    for (TensorRule const& rule : rules) {
        auto const stars = [](std::string const& name) {
            return std::count(name.begin(), name.end(), '*');
        };
        if (rule.tensors.empty()) {
            throw_error<InvalidArgument>({"zero: the rule of parameter '", rule.parameter,
                                          "' names no tensor; set TensorRule::tensors."});
        }
        for (std::string const& tensor : rule.tensors) {
            if (!rule.parameter.empty() && stars(tensor) != stars(rule.parameter)) {
                throw_error<InvalidArgument>(
                    {"zero: the names '", rule.parameter, "' and '", tensor,
                     "' of a rule have different numbers of '*'; each stands for the same text in "
                     "both, so give both the same number."});
            }
        }
    }
}

ZERO_COLD_INLINE std::vector<std::size_t> shape_of(TensorEntry const& tensor) {
    return {tensor.shape.begin(), tensor.shape.end()};
}

/// Makes a view of tensors, or returns why they do not fit.
ZERO_COLD_INLINE std::string make_view(TensorRule const& rule,
                                       std::span<TensorEntry const* const> tensors,
                                       std::span<std::size_t const> used, TensorView& view) {
    TensorEntry const& model = *tensors[used.front()];
    std::vector<std::size_t> const shape = shape_of(model);
    bool const is_matrix = shape.size() > 1;
    bool const is_transposed = rule.is_transposed && is_matrix;
    auto const refusal = [&](TensorEntry const& tensor, std::string_view why) {
        return text({"parameter '", view.name, "' cannot be made of tensor '", tensor.name,
                     "', type ", tensor.dtype, ", shape ", shape_text(shape_of(tensor)), ": ",
                     why});
    };
    if (shape.size() > 2 && (rule.is_transposed || rule.is_by_columns)) {
        return refusal(model, "only two dimensions are transposed or joined by columns");
    }
    std::size_t const joined_axis = is_matrix && rule.is_by_columns != is_transposed ? 1 : 0;
    std::size_t joined = 0; // rows, or columns, of all tensors
    for (std::size_t const index : used) {
        TensorEntry const& tensor = *tensors[index];
        std::vector<std::size_t> other = shape_of(tensor);
        std::size_t const size = other.empty() ? 1 : other[smaller(joined_axis, other.size() - 1)];
        if (!shape.empty() && other.size() == shape.size()) {
            other[joined_axis] = shape[joined_axis];
        }
        if (other != shape || tensor.dtype != model.dtype) {
            return refusal(tensor, text({"it is joined with '", model.name, "', type ", model.dtype,
                                         ", shape ", shape_text(shape)}));
        }
        joined += size;
    }
    Range const part = rule.part.is_empty() ? Range{0, joined} : rule.part;
    if (part.begin > part.end || part.end > joined) {
        return refusal(model, text({"it is the part [", part.begin, ":", part.end, "] of ", joined,
                                    rule.is_by_columns ? " columns" : " rows"}));
    }
    view.dtype = model.dtype;
    view.shape = model.shape;
    if (!shape.empty()) {
        view.shape[joined_axis] = part.size();
    } else if (joined != 1) {
        view.shape = {part.size()};
    }
    if (is_transposed) {
        std::swap(view.shape[0], view.shape[1]);
    }
    std::vector<std::size_t> const sizes(view.shape.begin(), view.shape.end());
    std::size_t const rows = is_matrix ? sizes[0] : rule.is_by_columns ? 1 : product_of(sizes);
    view.columns = is_matrix ? product_of({sizes.begin() + 1, sizes.end()})
                             : (rule.is_by_columns ? product_of(sizes) : 1);
    std::size_t begin = 0; // of the tensor, in what was joined
    for (std::size_t const index : used) {
        std::vector<std::size_t> const own = shape_of(*tensors[index]);
        std::size_t const size = own.empty() ? 1 : own[joined_axis];
        Range const common = intersection(part, {begin, begin + size});
        if (!common.is_empty()) {
            Range const along{common.begin - part.begin, common.end - part.begin};
            TensorBlock block;
            block.tensor = index;
            block.rows = rule.is_by_columns ? Range{0, rows} : along;
            block.columns = rule.is_by_columns ? along : Range{0, view.columns};
            block.is_transposed = is_transposed;
            block.stride = is_matrix ? product_of({own.begin() + 1, own.end()})
                                     : (rule.is_by_columns ? size : 1);
            // Rows of the tensor are joined, or its columns.
            block.first =
                (common.begin - begin) * (is_matrix ? (joined_axis == 0 ? block.stride : 1) : 1);
            view.blocks.push_back(block);
        }
        begin += size;
    }
    return {};
}

ZERO_COLD_INLINE TensorViews apply_rules(TensorRules const& rules,
                                         std::span<TensorEntry const* const> tensors) {
    require_valid(rules);
    enum class Use : char { none, part, whole };
    TensorViews views;
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
        by_name.emplace(tensors[tensor]->name, tensor);
    }
    std::vector<Use> uses(tensors.size(), Use::none);
    std::set<std::string> names;
    auto const is_new = [&](std::string const& parameter, std::string const& tensor) {
        bool const is = names.insert(parameter).second;
        if (!is) {
            views.problems.push_back(
                text({"tensor '", tensor, "' is not the only one for parameter '", parameter,
                      "'; a rule without a parameter leaves tensors out"}));
        }
        return is;
    };
    for (TensorRule const& rule : rules) {
        Use const use = rule.part.is_empty() ? Use::whole : Use::part;
        auto const is_free = [&](std::size_t tensor) {
            return uses[tensor] == Use::none || (uses[tensor] == Use::part && use == Use::part);
        };
        std::set<std::vector<std::string>> known;
        std::vector<std::vector<std::string>> found; // in the order of the tensors
        for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
            for (std::string const& pattern : rule.tensors) {
                std::vector<std::string> texts;
                if (!is_free(tensor) || !matches(pattern, tensors[tensor]->name, texts)) {
                    continue;
                }
                if (rule.parameter.empty()) {
                    uses[tensor] = Use::whole;
                } else if (known.insert(texts).second) {
                    found.push_back(std::move(texts));
                }
            }
        }
        if (found.empty() && !rule.parameter.empty()) {
            views.unmatched.push_back(
                text({"the rule of '", rule.parameter, "' names '", rule.tensors.front(),
                      "', which fits no tensor that is left"}));
        }
        for (std::vector<std::string> const& texts : found) {
            TensorView view;
            view.name = filled(rule.parameter, texts);
            std::vector<std::size_t> used;
            std::string missing;
            for (std::string const& pattern : rule.tensors) {
                std::string const name = filled(pattern, texts);
                auto const at = by_name.find(name);
                if (at == by_name.end() || !is_free(at->second)
                    || std::find(used.begin(), used.end(), at->second) != used.end()) {
                    missing =
                        text({"parameter '", view.name, "' lacks tensor '", name, "', which ",
                              at == by_name.end() ? "no file has" : "is used already, as a whole"});
                    views.problems.push_back(missing);
                } else {
                    used.push_back(at->second);
                }
            }
            for (std::size_t const tensor : used) {
                uses[tensor] = use;
            }
            if (!missing.empty() || !is_new(view.name, tensors[used.front()]->name)) {
                continue;
            }
            std::string problem = make_view(rule, tensors, used, view);
            if (problem.empty()) {
                views.parameters.push_back(std::move(view));
            } else {
                views.problems.push_back(std::move(problem));
            }
        }
    }
    std::vector<std::size_t> viewed(tensors.size(), 0); // elements
    for (TensorView const& view : views.parameters) {
        for (TensorBlock const& block : view.blocks) {
            viewed[block.tensor] += block.rows.size() * block.columns.size();
        }
    }
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
        std::string const& name = tensors[tensor]->name;
        std::size_t const elements = product_of(shape_of(*tensors[tensor]));
        if (uses[tensor] == Use::part && viewed[tensor] < elements) {
            views.left_over.push_back(text({"no parameter has ", elements - viewed[tensor],
                                            " of the ", elements, " elements of tensor '", name,
                                            "', shape ", shape_text(shape_of(*tensors[tensor]))}));
        }
        if (uses[tensor] == Use::none && is_new(name, name)) {
            TensorView view;
            view.name = name;
            (void)make_view({}, tensors, {&tensor, 1}, view); // always fits
            views.parameters.push_back(std::move(view));
        }
    }
    return views;
}

ZERO_COLD_INLINE ExportedTensor exported_tensor(TensorRules const& rules,
                                                std::string const& parameter) {
    require_valid(rules);
    for (TensorRule const& rule : rules) {
        std::vector<std::string> texts;
        if (rule.parameter.empty() || !matches(rule.parameter, parameter, texts)) {
            continue;
        }
        if (rule.tensors.size() != 1 || !rule.part.is_empty()) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter, "' is ",
                 rule.tensors.size() != 1 ? "joined from several tensors" : "a part of a tensor",
                 " by the rule of '", rule.parameter,
                 "', and an export writes parameters as they are or transposed; put a rule before "
                 "it "
                 "that names one tensor, which the file then has."});
        }
        return {filled(rule.tensors.front(), texts), rule.is_transposed};
    }
    return {parameter, false};
}

ZERO_COLD_INLINE std::vector<float> transposed(std::vector<float> values,
                                               std::vector<std::size_t> const& shape) {
    if (shape.size() != 2) {
        return values;
    }
    std::vector<float> turned;
    turned.reserve(values.size());
    for (std::size_t column = 0; column < shape[1]; ++column) {
        for (std::size_t row = 0; row < shape[0]; ++row) {
            turned.push_back(values[row * shape[1] + column]);
        }
    }
    return turned;
}

} // namespace ZERO_NAMESPACE::detail
