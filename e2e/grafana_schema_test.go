package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// The fields of a dashboard in the schema of Grafana 10 and 11, as far as docs/grafana/weir.json uses them. A field that is missing
// here is a mistake, or must be looked up and added.
type (
	dashboard struct {
		Inputs               []any             `json:"__inputs"`
		Elements             map[string]any    `json:"__elements"`
		Requires             []requirement     `json:"__requires"`
		Annotations          annotations       `json:"annotations"`
		Description          string            `json:"description"`
		Editable             bool              `json:"editable"`
		FiscalYearStartMonth int               `json:"fiscalYearStartMonth"`
		GraphTooltip         int               `json:"graphTooltip"`
		ID                   *int              `json:"id"`
		Links                []any             `json:"links"`
		LiveNow              bool              `json:"liveNow"`
		Panels               []dashboardPanel  `json:"panels"`
		Refresh              string            `json:"refresh"`
		SchemaVersion        int               `json:"schemaVersion"`
		Tags                 []string          `json:"tags"`
		Templating           templating        `json:"templating"`
		Time                 map[string]string `json:"time"`
		Timepicker           map[string]any    `json:"timepicker"`
		Timezone             string            `json:"timezone"`
		Title                string            `json:"title"`
		UID                  string            `json:"uid"`
		Version              int               `json:"version"`
		WeekStart            string            `json:"weekStart"`
	}
	requirement struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	annotations struct {
		List []annotation `json:"list"`
	}
	annotation struct {
		BuiltIn         int           `json:"builtIn"`
		Datasource      datasourceRef `json:"datasource"`
		Enable          bool          `json:"enable"`
		Expr            string        `json:"expr"`
		Hide            bool          `json:"hide"`
		IconColor       string        `json:"iconColor"`
		Name            string        `json:"name"`
		Step            string        `json:"step"`
		TagKeys         string        `json:"tagKeys"`
		TextFormat      string        `json:"textFormat"`
		TitleFormat     string        `json:"titleFormat"`
		Type            string        `json:"type"`
		UseValueForTime string        `json:"useValueForTime"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		AllValue    string          `json:"allValue"`
		Current     map[string]any  `json:"current"`
		Datasource  *datasourceRef  `json:"datasource"`
		Definition  string          `json:"definition"`
		Description string          `json:"description"`
		Hide        int             `json:"hide"`
		IncludeAll  bool            `json:"includeAll"`
		Label       string          `json:"label"`
		Multi       bool            `json:"multi"`
		Name        string          `json:"name"`
		Options     []any           `json:"options"`
		Query       json.RawMessage `json:"query"` // a text for a data source, else a variableQuery
		Refresh     int             `json:"refresh"`
		Regex       string          `json:"regex"`
		SkipURLSync bool            `json:"skipUrlSync"`
		Sort        int             `json:"sort"`
		Type        string          `json:"type"`
	}
	variableQuery struct {
		QryType int    `json:"qryType"`
		Query   string `json:"query"`
		RefID   string `json:"refId"`
	}
	datasourceRef struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	dashboardPanel struct {
		Collapsed       bool             `json:"collapsed"` // only in a row
		Panels          []dashboardPanel `json:"panels"`    // only in a row
		Datasource      datasourceRef    `json:"datasource"`
		Description     string           `json:"description"`
		FieldConfig     fieldConfig      `json:"fieldConfig"`
		GridPos         gridPos          `json:"gridPos"`
		ID              int              `json:"id"`
		Options         json.RawMessage  `json:"options"` // see panelOptions
		Targets         []panelTarget    `json:"targets"`
		Title           string           `json:"title"`
		Transformations []transformation `json:"transformations"`
		Type            string           `json:"type"`
	}
	gridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	panelTarget struct {
		Datasource   datasourceRef `json:"datasource"`
		EditorMode   string        `json:"editorMode"`
		Expr         string        `json:"expr"`
		Format       string        `json:"format"`
		Instant      bool          `json:"instant"`
		LegendFormat string        `json:"legendFormat"`
		Range        bool          `json:"range"`
		RefID        string        `json:"refId"`
	}
	transformation struct {
		ID      string         `json:"id"`
		Options map[string]any `json:"options"`
	}
	fieldConfig struct {
		Defaults  fieldDefaults   `json:"defaults"`
		Overrides []fieldOverride `json:"overrides"`
	}
	fieldDefaults struct {
		Color      fieldColor      `json:"color"`
		Custom     json.RawMessage `json:"custom"` // see panelCustom
		Decimals   int             `json:"decimals"`
		Mappings   []valueMapping  `json:"mappings"`
		Max        *float64        `json:"max"`
		Min        *float64        `json:"min"`
		NoValue    string          `json:"noValue"`
		Thresholds thresholds      `json:"thresholds"`
		Unit       string          `json:"unit"`
	}
	fieldColor struct {
		FixedColor string `json:"fixedColor"`
		Mode       string `json:"mode"`
	}
	valueMapping struct {
		Options map[string]struct {
			Color string `json:"color"`
			Index int    `json:"index"`
			Text  string `json:"text"`
		} `json:"options"`
		Type string `json:"type"`
	}
	thresholds struct {
		Mode  string `json:"mode"`
		Steps []struct {
			Color string   `json:"color"`
			Value *float64 `json:"value"`
		} `json:"steps"`
	}
	fieldOverride struct {
		Matcher struct {
			ID      string `json:"id"`
			Options string `json:"options"`
		} `json:"matcher"`
		Properties []struct {
			ID    string `json:"id"`
			Value any    `json:"value"`
		} `json:"properties"`
	}
	legendOptions struct {
		Calcs       []string `json:"calcs"`
		DisplayMode string   `json:"displayMode"`
		Placement   string   `json:"placement"`
		ShowLegend  bool     `json:"showLegend"`
		SortBy      string   `json:"sortBy"`
		SortDesc    bool     `json:"sortDesc"`
	}
	tooltipOptions struct {
		Mode string `json:"mode"`
		Sort string `json:"sort"`
	}
	hideFrom struct {
		Legend  bool `json:"legend"`
		Tooltip bool `json:"tooltip"`
		Viz     bool `json:"viz"`
	}
	scaleDistribution struct {
		Log  int    `json:"log"`
		Type string `json:"type"`
	}
)

// panelOptions returns a value for the options of a panel of a type, and panelCustom one for the custom settings of its fields.
func panelOptions(panelType string) any {
	switch panelType {
	case "stat":
		return &struct {
			ColorMode     string `json:"colorMode"`
			GraphMode     string `json:"graphMode"`
			JustifyMode   string `json:"justifyMode"`
			Orientation   string `json:"orientation"`
			ReduceOptions struct {
				Calcs  []string `json:"calcs"`
				Fields string   `json:"fields"`
				Values bool     `json:"values"`
			} `json:"reduceOptions"`
			TextMode string `json:"textMode"`
		}{}
	case "timeseries":
		return &struct {
			Legend  legendOptions  `json:"legend"`
			Tooltip tooltipOptions `json:"tooltip"`
		}{}
	case "state-timeline":
		return &struct {
			AlignValue  string         `json:"alignValue"`
			Legend      legendOptions  `json:"legend"`
			MergeValues bool           `json:"mergeValues"`
			RowHeight   float64        `json:"rowHeight"`
			ShowValue   string         `json:"showValue"`
			Tooltip     tooltipOptions `json:"tooltip"`
		}{}
	case "table":
		return &struct {
			CellHeight string `json:"cellHeight"`
			Footer     struct {
				CountRows bool     `json:"countRows"`
				Fields    string   `json:"fields"`
				Reducer   []string `json:"reducer"`
				Show      bool     `json:"show"`
			} `json:"footer"`
			ShowHeader bool `json:"showHeader"`
			SortBy     []struct {
				Desc        bool   `json:"desc"`
				DisplayName string `json:"displayName"`
			} `json:"sortBy"`
		}{}
	case "heatmap":
		return &struct {
			Calculate  bool `json:"calculate"`
			CellGap    int  `json:"cellGap"`
			CellValues struct {
				Unit string `json:"unit"`
			} `json:"cellValues"`
			Color struct {
				Exponent float64 `json:"exponent"`
				Fill     string  `json:"fill"`
				Mode     string  `json:"mode"`
				Reverse  bool    `json:"reverse"`
				Scale    string  `json:"scale"`
				Scheme   string  `json:"scheme"`
				Steps    int     `json:"steps"`
			} `json:"color"`
			Exemplars    map[string]string  `json:"exemplars"`
			FilterValues map[string]float64 `json:"filterValues"`
			Legend       struct {
				Show bool `json:"show"`
			} `json:"legend"`
			RowsFrame map[string]string `json:"rowsFrame"`
			ShowValue string            `json:"showValue"`
			Tooltip   struct {
				Mode           string `json:"mode"` // since Grafana 10.3
				Show           bool   `json:"show"` // before Grafana 10.3
				ShowColorScale bool   `json:"showColorScale"`
				YHistogram     bool   `json:"yHistogram"`
			} `json:"tooltip"`
			YAxis struct {
				AxisPlacement string `json:"axisPlacement"`
				Reverse       bool   `json:"reverse"`
				Unit          string `json:"unit"`
			} `json:"yAxis"`
		}{}
	}
	return nil
}

func panelCustom(panelType string) any {
	switch panelType {
	case "stat":
		return &struct{}{}
	case "timeseries":
		return &struct {
			AxisBorderShow    bool              `json:"axisBorderShow"`
			AxisCenteredZero  bool              `json:"axisCenteredZero"`
			AxisColorMode     string            `json:"axisColorMode"`
			AxisLabel         string            `json:"axisLabel"`
			AxisPlacement     string            `json:"axisPlacement"`
			BarAlignment      int               `json:"barAlignment"`
			DrawStyle         string            `json:"drawStyle"`
			FillOpacity       int               `json:"fillOpacity"`
			GradientMode      string            `json:"gradientMode"`
			HideFrom          hideFrom          `json:"hideFrom"`
			InsertNulls       bool              `json:"insertNulls"`
			LineInterpolation string            `json:"lineInterpolation"`
			LineWidth         int               `json:"lineWidth"`
			PointSize         int               `json:"pointSize"`
			ScaleDistribution scaleDistribution `json:"scaleDistribution"`
			ShowPoints        string            `json:"showPoints"`
			SpanNulls         bool              `json:"spanNulls"`
			Stacking          struct {
				Group string `json:"group"`
				Mode  string `json:"mode"`
			} `json:"stacking"`
			ThresholdsStyle map[string]string `json:"thresholdsStyle"`
		}{}
	case "state-timeline":
		return &struct {
			FillOpacity int      `json:"fillOpacity"`
			HideFrom    hideFrom `json:"hideFrom"`
			InsertNulls bool     `json:"insertNulls"`
			LineWidth   int      `json:"lineWidth"`
			SpanNulls   bool     `json:"spanNulls"`
		}{}
	case "table":
		return &struct {
			Align       string            `json:"align"`
			CellOptions map[string]string `json:"cellOptions"`
			Filterable  bool              `json:"filterable"`
			Inspect     bool              `json:"inspect"`
		}{}
	case "heatmap":
		return &struct {
			HideFrom          hideFrom          `json:"hideFrom"`
			ScaleDistribution scaleDistribution `json:"scaleDistribution"`
		}{}
	}
	return nil
}

// decodeStrictly decodes JSON, and refuses fields that the value does not have.
func decodeStrictly(text []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(value)
}

// readDashboard returns docs/grafana/weir.json, and checks that all its fields are Grafana's.
func readDashboard(t testing.TB) dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(grafanaDir, "weir.json"))
	must.Succeed(t, err)
	var d dashboard
	must.Succeed(t, decodeStrictly(text, &d))
	for _, p := range d.allPanels() {
		if p.Type == "row" {
			continue
		}
		options, custom := panelOptions(p.Type), panelCustom(p.Type)
		if options == nil || custom == nil {
			t.Fatalf("%q is of type %q, which is not known here", p.Title, p.Type)
		}
		if err = decodeStrictly(p.Options, options); err != nil {
			t.Errorf("the options of %q: %v", p.Title, err)
		}
		if len(p.FieldConfig.Defaults.Custom) == 0 {
			continue
		}
		if err = decodeStrictly(p.FieldConfig.Defaults.Custom, custom); err != nil {
			t.Errorf("the custom settings of %q: %v", p.Title, err)
		}
	}
	return d
}

// allPanels returns all panels, including rows and the panels in them.
func (d *dashboard) allPanels() []dashboardPanel {
	var all []dashboardPanel
	for _, p := range d.Panels {
		all = append(append(all, p), p.Panels...)
	}
	return all
}

// expressions returns all expressions of the dashboard by their places, including the selectors of its variables.
func (d *dashboard) expressions(t testing.TB) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, p := range d.allPanels() {
		for _, target := range p.Targets {
			all[fmt.Sprintf("panel %q, %s", p.Title, target.RefID)] = target.Expr
		}
	}
	for _, a := range d.Annotations.List {
		if a.BuiltIn == 0 {
			all[fmt.Sprintf("annotation %q", a.Name)] = a.Expr
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		selector, label := v.labelValues(t)
		all[fmt.Sprintf("variable %q", v.Name)] = fmt.Sprintf("group by (%s) (%s)", label, selector)
	}
	return all
}
