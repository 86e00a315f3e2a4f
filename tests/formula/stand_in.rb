# frozen_string_literal: true

# As much of Homebrew's DSL as Formula/ingot.rb uses, for Debian's ruby.
#
#   ruby stand_in.rb describe FORMULA PREFIX      the formula as JSON
#   ruby stand_in.rb service FORMULA PREFIX       its plist and its systemd unit, as JSON
#   ruby stand_in.rb install FORMULA PREFIX BUILD SOURCE
#   ruby stand_in.rb test FORMULA PREFIX
#
# A method that the formula calls and that is not here is an error.  install runs what the formula asks
# for, except that `meson setup` and `meson compile` must name what BUILD was made with or is without
# effect on what is installed: BUILD is a build folder of the check, and is installed.
require "English"
require "fileutils"
require "json"
require "open3"
require "pathname"
require "socket"
require "tmpdir"

class Formula
  class << self
    attr_reader :service_block, :test_block

    def facts = @facts ||= { "dependencies" => [], "uses_from_macos" => [] }

    %w[desc license homepage url sha256 version].each do |name|
      define_method(name) { |value| facts[name] = value }
    end

    def head(url, **options) = facts["head"] = { "url" => url }.merge(options.transform_keys(&:to_s))
    def depends_on(what) = facts["dependencies"] << what
    def uses_from_macos(what) = facts["uses_from_macos"] << what
    def service(&block) = @service_block = block
    def test(&block) = @test_block = block
  end

  attr_reader :prefix, :homebrew

  def initialize(homebrew)
    @homebrew = homebrew
    @prefix = homebrew / "Cellar/ingot/1"
  end

  def name = "ingot"
  def etc = homebrew / "etc"
  def var = homebrew / "var"
  def pkgetc = etc / "ingot"
  def bin = prefix / "bin"
  def lib = prefix / "lib"
  def pkgshare = prefix / "share/ingot"
  def opt_prefix = homebrew / "opt/ingot"
  def opt_bin = opt_prefix / "bin"
  def opt_lib = opt_prefix / "lib"
end

# What a test block sees.
class Testing
  attr_reader :formula, :testpath

  def initialize(formula, folder)
    @formula = formula
    @testpath = Pathname(folder)
  end

  %i[bin lib pkgshare opt_bin opt_lib etc var].each { |name| define_method(name) { formula.public_send(name) } }

  def free_port
    server = TCPServer.new("127.0.0.1", 0)
    server.addr[1].tap { server.close }
  end

  def build = Class.new { def self.stable? = false }
  def version = "HEAD"

  def system(*words)
    Kernel.system(*words.map(&:to_s)) || raise("#{words.join(" ")} failed")
  end

  def spawn(*words) = Process.spawn(*words.map(&:to_s))

  def shell_output(command)
    out, status = Open3.capture2(command)
    raise "#{command} failed:\n#{out}" unless status.success?

    out
  end

  def assert_equal(want, got)
    raise "#{got.inspect}, not #{want.inspect}" unless want == got
  end

  def assert_match(want, got)
    raise "#{got.inspect} has no #{want.inspect}" unless got.include?(want)
  end
end

# A pathname to which files are installed.
class Pathname
  def install(source)
    mkpath
    target = self / File.basename(source)
    # pkgetc keeps a file that its user changed
    target = Pathname("#{target}.default") if to_s.include?("/etc/") && target.exist? && target.read != File.read(source)
    FileUtils.cp source, target
  end
end

class Installing
  attr_reader :formula

  def initialize(formula, build)
    @formula = formula
    @build = build
  end

  %i[etc var opt_lib pkgetc pkgshare].each { |name| define_method(name) { formula.public_send(name) } }

  def std_meson_args = ["--prefix=#{formula.prefix}", "--libdir=lib", "--buildtype=release", "--wrap-mode=nofallback"]

  def system(*words)
    case words.take(2)
    when %w[meson setup] then set_up(words.drop(2))
    when %w[meson compile] then nil
    when %w[meson install] then put_in_place
    else raise "not expected: #{words.join(" ")}"
    end
  end

  def set_up(words)
    options = JSON.parse(File.read("#{@build}/meson-info/intro-buildoptions.json")).to_h { |o| [o["name"], o["value"]] }
    words.grep(/\A-D|\A--/).each do |word|
      name = word[/\A(?:-D|--)([a-z_-]+)=/, 1]&.tr("-", "_") || raise("without a value: #{word}")
      raise "meson has no option #{name}" unless options.key?(name)
    end
    raise "not a release build" unless options["buildtype"] == "release"
  end

  # The build's own prefix becomes the formula's.
  def put_in_place
    Dir.mktmpdir(nil, formula.homebrew) do |stage|
      out, status = Open3.capture2e("meson", "install", "-C", @build.to_s, "--no-rebuild", "--quiet", "--destdir", stage)
      raise out unless status.success?

      made = Pathname(stage) / "usr/local"
      formula.prefix.parent.mkpath
      FileUtils.mv made, formula.prefix
    end
    modules, = formula.lib.glob("**/ingot/modules")
    FileUtils.mv modules.parent, formula.lib if modules.parent.parent != formula.lib # Debian's lib/TRIPLET
    formula.opt_prefix.parent.mkpath
    FileUtils.ln_sf formula.prefix, formula.opt_prefix
  end

  def inreplace(file, before, after)
    text = File.read(file)
    raise "#{file} has #{text.scan(before).length} of #{before}" unless text.scan(before).length == 1

    File.write(file, text.sub(before) { after })
  end
end

# The service block's values, and Homebrew's texts of them.
class ServiceBlock
  FIELDS = %i[run keep_alive process_type stop_timeout log_path error_log_path].freeze

  attr_reader :values

  def initialize(formula, &block)
    @formula = formula
    @values = {}
    instance_eval(&block)
  end

  FIELDS.each { |name| define_method(name) { |value| @values[name] = value } }
  %i[opt_bin etc var].each { |name| define_method(name) { @formula.public_send(name) } }

  def plist
    <<~XML
      <?xml version="1.0" encoding="UTF-8"?>
      <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
      <plist version="1.0">
      <dict>
      #{entries.sort.map { |key, value| "\t<key>#{key}</key>\n#{element(value)}" }.join("\n")}
      </dict>
      </plist>
    XML
  end

  def entries
    { "Label" => "homebrew.mxcl.ingot", "ProgramArguments" => values[:run].map(&:to_s), "RunAtLoad" => true,
      "ExitTimeOut" => values[:stop_timeout], "ProcessType" => values[:process_type].to_s.capitalize,
      "StandardOutPath" => values[:log_path].to_s, "StandardErrorPath" => values[:error_log_path].to_s,
      "KeepAlive" => values[:keep_alive],
      "LimitLoadToSessionType" => %w[Aqua Background LoginWindow StandardIO System] }
  end

  def element(value)
    case value
    when true, false then "\t<#{value}/>"
    when Integer then "\t<integer>#{value}</integer>"
    when Array then "\t<array>\n#{value.map { |x| "\t\t<string>#{x}</string>" }.join("\n")}\n\t</array>"
    else "\t<string>#{value}</string>"
    end
  end

  def unit
    <<~UNIT
      [Unit]
      Description=Homebrew generated unit for ingot

      [Install]
      WantedBy=default.target

      [Service]
      Type=simple
      ExecStart=#{values[:run].map { |x| "\"#{x}\"" }.join(" ")}
      #{"Restart=on-failure\n" if values[:keep_alive]}TimeoutStopSec=#{values[:stop_timeout]}
      StandardOutput=append:#{values[:log_path]}
      StandardError=append:#{values[:error_log_path]}
    UNIT
  end
end

module StandIn
  def self.load(path, homebrew)
    Kernel.load path.to_s
    Ingot.new(Pathname(homebrew))
  end

  def self.describe(formula)
    puts JSON.generate(Ingot.facts.merge("caveats" => formula.caveats))
  end

  def self.service(formula)
    block = ServiceBlock.new(formula, &Ingot.service_block)
    puts JSON.generate("plist" => block.plist, "unit" => block.unit)
  end

  # The formula's own method, with another self.
  def self.install(formula, build, source)
    Dir.chdir(source) do
      Installing.new(formula, Pathname(build)).tap do |x|
        formula.define_singleton_method(:method_missing) { |name, *args| x.public_send(name, *args) }
        formula.define_singleton_method(:respond_to_missing?) { |*| true }
        formula.define_singleton_method(:system) { |*args| x.system(*args) }
        formula.install
      end
    end
  end

  def self.test(formula)
    Dir.mktmpdir do |folder|
      Dir.chdir(folder) { Testing.new(formula, folder).instance_eval(&Ingot.test_block) }
    end
    puts "passed"
  end
end

if $PROGRAM_NAME == __FILE__
  what, path, homebrew, *rest = ARGV
  StandIn.public_send(what, StandIn.load(path, homebrew), *rest)
end
