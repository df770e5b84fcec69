# cmake -DFOLDER=<folder to write into> [-DCLANG_FORMAT=<clang-format 16>] -P check_controls.cmake
# Negative controls: each check of this folder complains about a tree with one wrong file, in the expected words, and accepts a tree without one.

cmake_minimum_required(VERSION 3.20)

set(good_header "#pragma once\n\nnamespace ZERO_NAMESPACE {\n\nstruct Good {};\n\n} // namespace ZERO_NAMESPACE\n")
set(failures 0)

# Runs `script` on a tree that consists of a good header and of `file` with this text. `expected` is a part of the output; empty when the file is right.
function(control script file text expected)
    set(root "${FOLDER}/tree")
    file(REMOVE_RECURSE "${root}")
    file(WRITE "${root}/include/zero/core/good.hpp" "${good_header}")
    file(WRITE "${root}/.clang-format" "BasedOnStyle: LLVM\nShortNamespaceLines: 0\n")
    file(WRITE "${root}/${file}" "${text}")
    execute_process(COMMAND "${CMAKE_COMMAND}" "-DROOT=${root}" "-DCLANG_FORMAT=${CLANG_FORMAT}" -P "${CMAKE_CURRENT_LIST_DIR}/${script}.cmake"
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    string(FIND "${output}" "${expected}" at)
    if(expected STREQUAL "" AND NOT result EQUAL 0)
        message("${script} rejects a right file:\n${text}\n${output}")
    elseif(NOT expected STREQUAL "" AND (result EQUAL 0 OR at LESS 0))
        message("${script} does not say '${expected}' about\n${text}\n${output}")
    else()
        return()
    endif()
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
endfunction()

# A header with one declaration in one namespace.
function(control_header file namespace declaration expected)
    control(check_structure "include/zero/${file}" "#pragma once\n\nnamespace ${namespace} {\n\n${declaration}\n\n} // namespace ${namespace}\n" "${expected}")
    set(failures ${failures} PARENT_SCOPE)
endfunction()

string(REPEAT "x" 101 long)
string(REPEAT "\n" 400 many_lines)

control(check_headers include/zero/core/wrong.hpp "struct Wrong {};\n" "core/wrong.hpp: no '#pragma once'")
control(check_headers include/zero/core/wrong.hpp "#pragma once\n#define WRONG\n" "defines the macro 'WRONG'")
control(check_headers include/zero/core/wrong.hpp "#pragma once\n#include \"../stage/x.hpp\"\n" "includes stage/x.hpp, which is not in 'core'")
control(check_headers include/zero/other/wrong.hpp "#pragma once\n" "the folder 'other' is not a layer")
control(check_headers include/zero/checkpoint/wrong.hpp "#pragma once\n#include \"../cuda/x.hpp\"\n" "includes cuda/x.hpp, which is not in 'checkpoint'")
control(check_headers include/zero/stage/wrong.hpp "#pragma once\n#include \"../checkpoint/x.hpp\"\n" "includes checkpoint/x.hpp, which is not in 'stage'")
control(check_headers include/zero/wrong.hpp "#pragma once\n#include \"checkpoint/x.hpp\"\n" "wrong.hpp: includes 'checkpoint' or 'mpi'")
control(check_headers include/zero/mpi/wrong.hpp "#pragma once\n#include \"../checkpoint/x.hpp\"\n" "includes checkpoint/x.hpp, which is not in 'mpi'")
control(check_headers include/zero/checkpoint/right.hpp "#pragma once\n#include \"../stage/x.hpp\"\n" "")
control(check_headers include/zero/stage/right.hpp "#pragma once\n#define ZERO_RIGHT\n#include \"../core/x.hpp\"\n" "")

control_header(core/wrong.hpp ZERO_NAMESPACE::detail "struct Wrong {};" "declares something in ZERO_NAMESPACE::detail, but lies outside of a folder detail/")
control_header(core/wrong.hpp ZERO_NAMESPACE::host "namespace detail {\nstruct Wrong {};\n} // namespace detail"
    "declares something in ZERO_NAMESPACE::host::detail, but lies outside of a folder detail/")
control_header(core/right.hpp ZERO_NAMESPACE::detail "class Right; // see detail/right.hpp\n\ntemplate <class A, class... B>\n    requires (sizeof(A) > 1)\nstruct Other;" "")
control_header(core/wrong.hpp ZERO_NAMESPACE::detail "template <class A>\nvoid wrong();\nclass Right;" "declares something in ZERO_NAMESPACE::detail")
control_header(core/detail/wrong.hpp ZERO_NAMESPACE "struct Wrong {};" "declares something in ZERO_NAMESPACE, but lies in a folder detail/")
control_header(core/detail/right.hpp ZERO_NAMESPACE "class Right;" "")
control_header(core/detail/right.hpp ZERO_NAMESPACE::core::detail "struct Right {};" "")
control_header(core/detail/right.ipp ZERO_NAMESPACE "ZERO_INLINE void Right::f() {}" "")
control_header(core/wrong.ipp ZERO_NAMESPACE "ZERO_INLINE void Wrong::f() {}" "an .ipp file lies in a folder detail/")
control_header(core/wrong.hpp zero "struct Wrong {};" "opens the namespace 'zero' without ZERO_NAMESPACE")
control_header(core/wrong.hpp ZERO_NAMESPACE "struct Wrong {};${many_lines}" "and a header has at most 400")
control(check_structure include/zero/core/wrong.hpp "#pragma once\n\nstruct Wrong {};\n" "declares something outside every namespace: struct Wrong")
control(check_structure include/zero/core/wrong.hpp "#pragma once\n\nnamespace ZERO_NAMESPACE {\n}\n" "does not close ZERO_NAMESPACE")
control(check_structure include/zero/core/detail/right.hpp "#pragma once\n\n#if !defined(ZERO_RIGHT)\n#define ZERO_RIGHT(x) \\\n    x\n#endif\n" "")

foreach(folder IN ITEMS include/zero/core tests/core bench examples src)
    control(check_structure ${folder}/wrong.cpp "// ${long}\n" "a line is longer than 100 characters")
endforeach()
control(check_structure tests/compile_fail/right.cpp "// expect: ${long}\n" "")
control(check_structure examples/right.cpp "#error \"${long}\"\n" "")
control(check_structure examples/right.cpp "#error \\\n    \"${long}\"\n" "")
control(check_structure examples/wrong.cpp "#error \"right\"\nint x[3]; // ${long}[\n" "a line is longer than 100 characters: int x|3||")

foreach(folder IN ITEMS tests/core bench examples)
    control(check_structure ${folder}/wrong.cpp "#include \"zero/core/good.hpp\"\n" "write <zero/core/good.hpp>")
endforeach()
control(check_structure tests/core/wrong.cpp "#include \"../include/zero/core/good.hpp\"\n" "write <zero/core/good.hpp>")
control(check_structure tests/core/right.cpp "#include \"support/zero.hpp\"\n\n#include <zero/core/good.hpp>\n" "")

foreach(macro IN ITEMS "TEST_CASE(" "TEMPLATE_TEST_CASE(" "TEST_CASE_METHOD(Fixture, ")
    control(check_structure tests/core/wrong_test.cpp "\n${macro}\"wrong\", \"[x]\") {}\n" "does not begin with a capital letter: \"wrong\"")
    control(check_structure tests/core/wrong_test.cpp "\n${macro}\"Wrong.\", \"[x]\") {}\n" "ends with a full stop: \"Wrong.\"")
    control(check_structure tests/core/wrong_test.cpp "\n${macro}\"In [two]; \"\n    \"parts.\") {}\n" "ends with a full stop: \"In |two|| parts.\"")
    control(check_structure tests/core/right_test.cpp "\n${macro}\"Right, in \\\"two\\\" \"\n    \"parts\", \"[x.]\") {}\n" "")
endforeach()

if(CLANG_FORMAT)
    control(check_format src/wrong.cpp "int  wrong;\n" "src/wrong.cpp:1:4: error:")
    control(check_format tests/core/right.cpp "int right;\n" "")
endif()

if(failures GREATER 0)
    message(FATAL_ERROR "${failures} controls failed")
endif()
