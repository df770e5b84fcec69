#pragma once

// Models in the files of another program: their tensors have other names, are cut and joined, and
// lie in several files with an index.

#include "support/temporary_folder.hpp"

#include <zero/checkpoint/detail/encode_floats.hpp>
#include <zero/checkpoint/tensor_entry.hpp>
#include <zero/checkpoint/tensor_rules.hpp>
#include <zero/core/dtype.hpp>
#include <zero/layout/detail/partition/shape.hpp>
#include <zero/stage/parameter.hpp>
#include <zero/stage/training_state.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::foreign_model {

/// @brief Returns an element of a parameter. Every type holds it exactly.
inline float value_of(std::size_t parameter, std::size_t element) {
    return static_cast<float>((7 * element + 31 * parameter) % 253) / 8 - 15;
}

/// @brief A tensor and its bytes, as a program without checksums writes it.
struct Tensor {
    std::string name;
    DType dtype = DType::float32;
    std::vector<std::size_t> shape;
    std::string bytes;

    template <class Value>
    Tensor(std::string of, DType type, std::vector<std::size_t> sizes, Value const& value)
        : name(std::move(of)), dtype(type), shape(std::move(sizes)),
          bytes(detail::product_of(shape) * size_of(type), '\0') {
        for (std::size_t i = 0; i < detail::product_of(shape); ++i) {
            detail::encode_item(type, reinterpret_cast<std::byte*>(bytes.data()), i, value(i));
        }
    }
};

/// @brief Writes one file. The order of the tensors is that of its data.
inline void write_file(std::filesystem::path const& file, std::vector<Tensor> const& tensors) {
    std::string json = "{";
    std::string data;
    for (Tensor const& tensor : tensors) {
        std::string shape;
        for (std::size_t const size : tensor.shape) {
            shape += (shape.empty() ? "" : ",") + std::to_string(size);
        }
        json += (json.size() == 1 ? "\"" : ",\"") + tensor.name + R"(":{"dtype":")"
                + (tensor.dtype == DType::float32    ? "F32"
                   : tensor.dtype == DType::bfloat16 ? "BF16"
                                                     : "F16")
                + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(data.size())
                + "," + std::to_string(data.size() + tensor.bytes.size()) + "]}";
        data += tensor.bytes;
    }
    json += "}";
    std::string content;
    for (unsigned byte = 0; byte < 8; ++byte) {
        content += static_cast<char>(json.size() >> 8 * byte & 0xffU);
    }
    set_content(file, content + json + data);
}

/// @brief Writes a folder: files with the tensors of each, and their index.
inline void write_folder(std::filesystem::path const& folder,
                         std::map<std::string, std::vector<Tensor>> const& files) {
    std::string json;
    for (auto const& [file, tensors] : files) {
        write_file(folder / file, tensors);
        for (Tensor const& tensor : tensors) {
            json += (json.empty() ? "\"" : ",\"") + tensor.name + "\":\"" + file + '"';
        }
    }
    set_content(folder / "model.safetensors.index.json",
                R"({"metadata":{"total_size":1},"weight_map":{)" + json + "}}");
}

/// @brief The parameters of an engine, and the same as tensors of another program.
struct Model {
    std::vector<std::string> names;
    std::vector<std::vector<std::size_t>> shapes;
    std::vector<Tensor> tensors;
    TensorRules rules;

    /// @brief Returns the registrations, without values.
    template <class T>
    [[nodiscard]] std::vector<Parameter<T>> parameters() const {
        std::vector<Parameter<T>> list(names.size());
        for (std::size_t i = 0; i < names.size(); ++i) {
            list[i].name = names[i];
            list[i].shape = shapes[i];
            list[i].units = {i};
        }
        return list;
    }

    /// @brief Returns the values that an engine should have.
    [[nodiscard]] std::vector<std::vector<float>> values() const {
        std::vector<std::vector<float>> all;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            std::vector<float>& values = all.emplace_back(detail::product_of(shapes[i]));
            for (std::size_t element = 0; element < values.size(); ++element) {
                values[element] = value_of(i, element);
            }
        }
        return all;
    }
};

/// @brief Returns the values that an engine has. Collective.
template <class Engine>
std::vector<std::vector<float>> values_of(Engine& engine, std::size_t parameters) {
    TrainingState state(engine);
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < parameters; ++i) {
        all.push_back(state.full_fp32_parameter(i));
    }
    return all;
}

/// @brief Makes a model whose parameters are renamed, transposed, joined or cut at random.
class RandomModel {
public:
    explicit RandomModel(std::uint32_t seed) : _random(seed) {
        std::size_t const groups = 1 + pick(6);
        for (std::size_t group = 0; group < groups; ++group) {
            add(group);
        }
        model.rules.push_back({"", {"buffer.*"}});
        model.tensors.emplace_back("buffer.mask", DType::float32, std::vector<std::size_t>{2, 2},
                                   [](std::size_t) { return 1.0F; });
        std::shuffle(model.tensors.begin(), model.tensors.end(), _random);
    }

    /// @brief Deals the tensors to files, and writes them with an index.
    void write(std::filesystem::path const& folder) {
        std::map<std::string, std::vector<Tensor>> files;
        std::size_t const count = 1 + pick(4);
        for (Tensor const& tensor : model.tensors) {
            files["part-" + std::to_string(pick(count)) + ".safetensors"].push_back(tensor);
        }
        write_folder(folder, files);
    }

    [[nodiscard]] std::size_t pick(std::size_t below) { return _random() % below; }

    Model model;

private:
    [[nodiscard]] std::size_t size() {
        static constexpr std::size_t sizes[] = {0, 1, 2, 3, 7, 13, 31, 64, 97};
        return sizes[pick(std::size(sizes))];
    }

    /// Adds parameters and tensors that are the same rows (or columns), cut at other places.
    void add(std::size_t group) {
        static constexpr DType types[] = {DType::float32, DType::bfloat16, DType::float16};
        DType const type = types[pick(3)];
        bool const is_matrix = pick(4) != 0;
        bool const is_transposed = pick(2) != 0;
        bool const is_by_columns = pick(2) != 0;
        bool const is_cut = pick(2) != 0; // into several parameters, otherwise into several tensors
        std::size_t const parts = 1 + pick(3);
        std::size_t const across = is_matrix ? size() : 1;
        std::vector<std::size_t> along;
        std::size_t total = 0;
        for (std::size_t part = 0; part < parts; ++part) {
            along.push_back(size() + (is_cut ? 1 : 0)); // an empty `part` is the whole tensor
            total += along.back();
        }
        auto const shape = [&](std::size_t length) {
            return !is_matrix      ? std::vector{length}
                   : is_by_columns ? std::vector{across, length}
                                   : std::vector{length, across};
        };
        std::string const name = "model.layers." + std::to_string(group) + ".w";
        std::string const own = "block" + std::to_string(group);
        TensorRule rule;
        rule.is_transposed = is_transposed;
        rule.is_by_columns = is_by_columns;
        // Element (line, other) of what the parts are joined to; `line` counts along the joined
        // axis.
        std::function<float(std::size_t, std::size_t)> joined;
        std::size_t const first = model.names.size();
        auto const element = [=](std::size_t length, std::size_t line, std::size_t other) {
            return is_by_columns ? other * length + line : line * across + other;
        };
        for (std::size_t part = 0; part < (is_cut ? parts : 1); ++part) {
            model.names.push_back(own + (is_cut ? "." + std::to_string(part) : ""));
            model.shapes.push_back(shape(is_cut ? along[part] : total));
        }
        joined = [=](std::size_t line, std::size_t other) {
            std::size_t part = 0;
            while (is_cut && line >= along[part]) {
                line -= along[part++];
            }
            return value_of(first + part, element(is_cut ? along[part] : total, line, other));
        };
        std::size_t begin = 0;
        for (std::size_t part = 0; part < (is_cut ? 1 : parts); ++part) {
            std::size_t const length = is_cut ? total : along[part];
            std::vector<std::size_t> sizes = shape(length);
            if (is_transposed && is_matrix) {
                std::swap(sizes[0], sizes[1]);
            }
            rule.tensors.push_back(name + (is_cut ? "" : std::to_string(part)));
            // Whether consecutive elements of the tensor are consecutive lines.
            bool const is_line_last = is_matrix && is_by_columns != is_transposed;
            model.tensors.emplace_back(rule.tensors.back(), type, sizes, [&](std::size_t i) {
                std::size_t const width = is_line_last ? length : across;
                return is_line_last ? joined(begin + i % width, i / width)
                                    : joined(begin + i / width, i % width);
            });
            begin += length;
        }
        if (!is_cut) {
            rule.parameter = own;
            model.rules.push_back(std::move(rule));
            return;
        }
        std::size_t at = 0;
        for (std::size_t part = 0; part < parts; ++part) {
            rule.parameter = model.names[first + part];
            rule.part = {at, at + along[part]};
            at += along[part];
            model.rules.push_back(rule);
        }
    }

    std::mt19937 _random;
};

} // namespace zero::test::foreign_model
