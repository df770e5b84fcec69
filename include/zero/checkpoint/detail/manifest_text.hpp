#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../tier/detail/checksum.hpp"
#include "file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief The checksum of a manifest is its last member and covers the text before it.
inline constexpr std::string_view before_checksum = ",\n \"checksum\": \"";
inline constexpr std::string_view after_checksum = "\"\n}\n"; ///< follows 16 digits

/// @brief Parts of this size of a manifest are in memory while it is read or written.
inline constexpr std::size_t manifest_part_bytes = std::size_t{1} << 16U;

/// @brief The text of a manifest as a parser reads it, of which one part is in memory, and its
/// checksum. The private sources of checkpoints include this header.
class ManifestText final : public std::streambuf {
public:
    /// @param whole must outlive this object
    explicit ManifestText(std::string_view whole) : _size(whole.size()), _end(whole.size()) {
        char* const begin = const_cast<char*>(whole.data()); // a get area is not written
        setg(begin, begin, begin + whole.size());
        note(whole);
    }

    /// @param file must outlive this object
    explicit ManifestText(File const& file)
        : _file(&file), _size(file.size()),
          _part(static_cast<std::size_t>(smaller<std::uint64_t>(_size, manifest_part_bytes)),
                '\0') {}

    /// @brief Returns whether the text ends with the checksum of what is before it. Reads what the
    /// parser has left.
    [[nodiscard]] bool has_right_checksum() {
        while (underflow() != traits_type::eof()) {}
        std::string expected(before_checksum);
        expected.append(checksum_text(_checksum.take())).append(after_checksum);
        return _last == expected;
    }

protected:
    int_type underflow() override {
        if (_end == _size) {
            return traits_type::eof();
        }
        std::span<char> const part(_part.data(), static_cast<std::size_t>(smaller<std::uint64_t>(
                                                     _part.size(), _size - _end)));
        _file->read_at(_end, std::as_writable_bytes(part));
        _end += part.size();
        note({part.data(), part.size()});
        setg(part.data(), part.data(), part.data() + part.size());
        return traits_type::to_int_type(part.front());
    }

private:
    /// Adds a part to the checksum, except the bytes of the last member.
    void note(std::string_view part) {
        constexpr std::size_t last = before_checksum.size() + 16 + after_checksum.size();
        std::uint64_t const covered = _size < last ? 0 : _size - last;
        auto const count = static_cast<std::size_t>(
            smaller<std::uint64_t>(part.size(), covered - smaller(covered, _noted)));
        _checksum.add(std::as_bytes(std::span<char const>(part.data(), count)));
        _last.append(part.substr(count));
        _noted += part.size();
    }

    File const* _file = nullptr;
    std::uint64_t _size;
    std::uint64_t _end = 0;   ///< of the part that is in memory
    std::uint64_t _noted = 0; ///< bytes that were added to the checksum or the last member
    std::string _part;        ///< of a file
    std::string _last;        ///< the bytes of the last member
    Checksum _checksum;
};

} // namespace ZERO_NAMESPACE::detail
